//! The books: what each account holds, and the room that is kept for changes under way.

pub(crate) mod accounts;
pub(crate) mod books;
