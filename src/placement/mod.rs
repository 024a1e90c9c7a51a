//! Seam 3, placement: chooses one of several by weight. Pure: the dice are passed in.
//!
//! A new algorithm is one file here and one arm where the configuration names it.

pub mod weighted;
