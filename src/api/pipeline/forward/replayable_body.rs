//! The body of a request, kept while it is read, so that a request can be made again after its slot has moved. Nothing
//! is read before a reader asks for it, so the bounds and deadlines of the reader hold unchanged.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;

use angarium_core::error::Error;

/// A body that can be read again from its beginning. The lock is held for one read at a time.
#[derive(Clone)]
pub struct ReplayableBody(Arc<Mutex<ReadState>>);

/// The frames that were read, and the rest.
struct ReadState {
    frames: Vec<Bytes>,
    rest: UnreadRest,
}

/// The unread part of a body.
enum UnreadRest {
    More(Body),
    Ended,
    /// The body failed, because it was late or for another reason; every later reader gets the same error.
    Broken {
        by: BodyBreak,
    },
}

#[derive(Clone, Copy)]
enum BodyBreak {
    Late,
    NoRoom,
    Other,
}

impl BodyBreak {
    fn of(error: &axum::Error) -> Self {
        if Error::is_late(error) {
            return Self::Late;
        }
        if Error::is_bodies_full(error) { Self::NoRoom } else { Self::Other }
    }

    fn error(self) -> axum::Error {
        match self {
            Self::Late => axum::Error::new(Error::Late),
            Self::NoRoom => axum::Error::new(Error::BodiesFull),
            Self::Other => axum::Error::new(std::io::Error::other("the body of the request broke off")),
        }
    }
}

/// The whole body is not available.
#[derive(Debug, PartialEq, Eq)]
pub struct IncompleteBody;

impl ReplayableBody {
    /// Wraps a body and keeps its frames as they are read.
    pub fn new(body: Body) -> Self {
        let rest = if body.is_end_stream() { UnreadRest::Ended } else { UnreadRest::More(body) };
        Self(Arc::new(Mutex::new(ReadState { frames: Vec::new(), rest })))
    }

    /// Returns the body from its beginning. Only one reader at a time is allowed.
    pub fn again(&self) -> Body {
        Body::new(BodyReplay { kept: self.0.clone(), next: 0 })
    }

    /// Returns the whole body. Fails when it has more than `most` bytes or broke off: a second reader gets the cause.
    pub async fn whole(&self, most: usize) -> Result<Bytes, IncompleteBody> {
        let mut body = BodyReplay { kept: self.0.clone(), next: 0 };
        let mut frames = Vec::new();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(|_| IncompleteBody)?.into_data().unwrap_or_default();
            bytes += data.len();
            if bytes > most {
                return Err(IncompleteBody);
            }
            frames.push(data);
        }
        if frames.len() == 1 {
            return Ok(frames.swap_remove(0));
        }
        let mut whole = BytesMut::with_capacity(bytes);
        frames.iter().for_each(|frame| whole.extend_from_slice(frame));
        let whole = whole.freeze();
        // One copy in memory, not two. No reader is within the frames, because only one reads at a time.
        self.0.lock().frames = vec![whole.clone()];
        Ok(whole)
    }
}

/// A reader of the kept body.
struct BodyReplay {
    kept: Arc<Mutex<ReadState>>,
    next: usize,
}

impl HttpBody for BodyReplay {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let me = &mut *self;
        let mut read = me.kept.lock();
        if let Some(frame) = read.frames.get(me.next) {
            me.next += 1;
            return Poll::Ready(Some(Ok(Frame::data(frame.clone()))));
        }
        loop {
            let rest = match &mut read.rest {
                UnreadRest::More(rest) => rest,
                UnreadRest::Ended => return Poll::Ready(None),
                UnreadRest::Broken { by } => return Poll::Ready(Some(Err(by.error()))),
            };
            match ready!(Pin::new(rest).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // Trailers are not used.
                    let Ok(data) = frame.into_data() else { continue };
                    me.next += 1;
                    read.frames.push(data.clone());
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => {
                    read.rest = UnreadRest::Broken { by: BodyBreak::of(&error) };
                    return Poll::Ready(Some(Err(error)));
                }
                None => read.rest = UnreadRest::Ended,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let read = self.kept.lock();
        let is_over = match &read.rest {
            UnreadRest::More(rest) => rest.is_end_stream(),
            UnreadRest::Ended => true,
            UnreadRest::Broken { .. } => false,
        };
        is_over && self.next >= read.frames.len()
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.kept.lock();
        let kept: usize = read.frames.iter().skip(self.next).map(Bytes::len).sum();
        let kept = u64::try_from(kept).unwrap_or(u64::MAX);
        let rest = match &read.rest {
            UnreadRest::More(rest) => rest.size_hint(),
            UnreadRest::Ended => SizeHint::with_exact(0),
            UnreadRest::Broken { .. } => SizeHint::new(),
        };
        let mut hint = SizeHint::new();
        if let Some(upper) = rest.upper() {
            hint.set_upper(kept.saturating_add(upper));
        }
        hint.set_lower(kept.saturating_add(rest.lower()));
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a body with these frames: text, or trailers and failures in their place.
    fn body(parts: &'static [Option<&'static str>]) -> ReplayableBody {
        struct Parts(std::slice::Iter<'static, Option<&'static str>>);
        impl HttpBody for Parts {
            type Data = Bytes;
            type Error = std::io::Error;
            fn poll_frame(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
                let frame = |part: &Option<&'static str>| match part {
                    Some(text) => Ok(Frame::data(Bytes::from_static(text.as_bytes()))),
                    None => Err(std::io::Error::other("it broke off")),
                };
                Poll::Ready(self.0.next().map(frame))
            }
        }
        ReplayableBody::new(Body::new(Parts(parts.iter())))
    }

    #[tokio::test]
    async fn partly_read_body_is_replayed_whole() {
        let kept = body(&[Some("one "), Some("two "), Some("three")]);
        let first = kept.again().frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, "one ");
        for _ in 0..2 {
            assert_eq!(kept.again().collect().await.unwrap().to_bytes(), "one two three");
        }
        assert_eq!(kept.whole(13).await.unwrap(), "one two three");
        assert_eq!(kept.whole(12).await, Err(IncompleteBody));
        assert_eq!(kept.again().size_hint().exact(), Some(13));
    }

    #[tokio::test]
    async fn broken_off_body_is_never_whole() {
        let kept = body(&[Some("one"), None]);
        assert_eq!(kept.whole(100).await, Err(IncompleteBody));
        for _ in 0..2 {
            let mut again = kept.again();
            assert_eq!(again.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
            assert!(again.frame().await.unwrap().is_err());
        }
    }

    #[tokio::test]
    async fn no_body_is_an_empty_one() {
        let kept = ReplayableBody::new(Body::empty());
        assert!(kept.again().is_end_stream());
        assert_eq!(kept.whole(0).await.unwrap(), "");
    }
}
