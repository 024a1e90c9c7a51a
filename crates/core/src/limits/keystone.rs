//! Bounds of the questions to Keystone, and of the memory of its answers.

/// Seconds that a validation is kept: by default, as in keystonemiddleware, and the least and most that may be set.
pub const KEYSTONE_CACHE_DEFAULT: u32 = 300;
/// See [`KEYSTONE_CACHE_DEFAULT`].
pub const KEYSTONE_CACHE: (u32, u32) = (0, 3_600);
/// Seconds that a look-up may take: by default, and the least and most that may be set.
pub const KEYSTONE_TIMEOUT_DEFAULT: u32 = 5;
/// See [`KEYSTONE_TIMEOUT_DEFAULT`].
pub const KEYSTONE_TIMEOUT: (u32, u32) = (1, 60);
