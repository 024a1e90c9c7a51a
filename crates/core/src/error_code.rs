//! The codes of errors: what a program reads of an error.

macro_rules! codes {
    ($($name:ident $word:literal $meaning:literal)*) => {
        /// Codes by which programs tell errors apart. Each has a word that is part of the API, so it never changes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $(#[doc = $meaning] $name),*
        }

        impl ErrorCode {
            /// All codes. Every error that the API sends has one of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The word of the code.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word),*
                }
            }

            /// The meaning of the code, as one sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning),*
                }
            }
        }
    };
}

codes! {
    Invalid "invalid" "The request is wrong; the description names the field."
    NotFound "not_found" "The thing that the request names does not exist."
    Claimed "claimed" "The message is claimed, and the request does not name its claim."
    NotClaimed "not_claimed" "The message is not claimed, and the request names a claim."
    ClaimEnded "claim_ended" "The claim of the message has ended."
    Gone "gone" "The message was recalled from its holder."
    BadReceipt "bad_receipt" "The receipt handle is not one of this queue."
    Unauthenticated "unauthenticated" "The request has no token, or an unknown one."
    ForeignProject "foreign_project" "The request names a project that is not that of its token."
    Unscoped "unscoped" "The token is not for one project."
    RegionalProject "regional_project" "The project belongs to an account of SQS, and its name has a region."
    ForeignOrigin "foreign_origin" "A web page of another site sent the request."
    ForeignHost "foreign_host" "The request names a host that the service does not answer for."
    ForeignSite "foreign_site" "A web page of another site sent the request, as the browser reports."
    UnsafeGet "unsafe_get" "A web page may not change anything by GET."
    NotAlone "not_alone" "Another replica runs."
    InUse "in_use" "The thing that would be changed or deleted is in use."
    Conflict "conflict" "The state of the thing does not allow the request."
    NotAuthorized "not_authorized" "The caller lacks the role."
    NoPool "no_pool" "No pool takes the queue."
    NotDurable "not_durable" "The pool cannot be as durable now as the queue asks for."
    Held "held" "An operator has stopped posts to the queue for a time; nothing was written."
    SubscriptionFull "subscription_full" "A subscription of the queue is full and refuses posts; nothing was written."
    Full "full" "There is no room for new messages."
    TooMany "too_many" "A bound is reached that other requests will free again."
    TooFast "too_fast" "The project makes requests faster than it may."
    OverQuota "over_quota" "The project would hold more than it may."
    Overloaded "overloaded" "The service has as many requests in progress as it takes."
    BodiesFull "bodies_full" "There is no room for the body of the request."
    Busy "busy" "Something else in progress must end first; nothing was written."
    Late "late" "The request did not arrive in time."
    Moved "moved" "Another replica serves the queue by now."
    Unavailable "unavailable" "A part of the service cannot be used now; nothing was written."
    Damaged "damaged" "The stored data is damaged; nothing was written."
    UnknownOutcome "unknown_outcome" "A part of the service failed: the request may have been carried out."
    NoRoute "no_route" "There is no such path."
    MethodNotAllowed "method_not_allowed" "The path does not have the method."
}
