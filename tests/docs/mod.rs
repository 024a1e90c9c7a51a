//! The documents: the pages that the program prints are fresh.

mod page;
mod reference;
