//! Bounds of a pool driver from which other parts derive their own.

/// Max connections of one pool to PostgreSQL for reads: a server allows a hundred connections by default.
pub const POSTGRES_READS: usize = 8;
