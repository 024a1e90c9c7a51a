//! The one test binary: each folder is a subject, each test says a fact.

mod http {
    mod connections;
    mod deadlines;
}
