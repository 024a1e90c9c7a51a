//! What every implementation of a seam promises: one suite a seam, run over each of its drivers.

pub mod storage;
