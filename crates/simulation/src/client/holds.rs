//! Holds and releases of queues, groups, pools and the project.

use super::{Client, certainty, pool_name, queue_name};
use crate::history::{HeldResource, Span};
use crate::requests::{ApiRequest, Outcome};

impl Client {
    /// Holds a resource: its messages cannot be claimed. With `refuses_posts` no post is stored.
    pub async fn hold(&self, resource: &HeldResource, refuses_posts: bool) {
        let began = self.world().elapsed();
        self.history.lock().begin_hold(resource, refuses_posts, began);
        let held = certainty(&self.send(&ApiRequest::hold(&path_of(resource), refuses_posts)).await);
        let span = Span { began, ended: self.world().elapsed() };
        self.history.lock().end_hold(resource, refuses_posts, span, held);
    }

    /// Releases a resource that may be held. Returns whether it is released, or does not exist.
    pub async fn release_hold(&self, resource: &HeldResource) -> bool {
        let began = self.world().elapsed();
        self.history.lock().begin_hold_release(resource, began);
        let outcome = self.send(&ApiRequest::release_hold(&path_of(resource))).await;
        let span = Span { began, ended: self.world().elapsed() };
        self.history.lock().end_hold_release(resource, span, certainty(&outcome));
        matches!(outcome, Outcome::Done(_) | Outcome::Missing)
    }
}

/// Returns the path of a resource.
pub fn path_of(resource: &HeldResource) -> String {
    match resource {
        HeldResource::Queue(queue) => format!("/queues/{}", queue_name(*queue)),
        HeldResource::Group(queue, group) => format!("/queues/{}/groups/{group}", queue_name(*queue)),
        HeldResource::Pool(pool) => format!("/pools/{}", pool_name(*pool)),
        HeldResource::Project => "/projects/000000000000".into(),
    }
}
