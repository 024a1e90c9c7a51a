//! Angarium.
