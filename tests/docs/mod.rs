//! The documents: the pages that the program prints are fresh, and the triggers of KEDA read what they scale by.

mod keda;
mod page;
mod reference;
