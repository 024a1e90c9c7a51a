//! The promises of the seams, kept by every implementation: each sentence of a trait's documentation is a test.

mod coordination;
