//! Bounds of a pool driver that others take theirs from.

/// Connections of one pool to PostgreSQL for reads: of the hundred that a server has by default.
pub const POSTGRES_READS: usize = 8;
