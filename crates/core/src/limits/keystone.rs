//! Bounds of the requests to Keystone, and of the cache of its answers.

/// Seconds that a validated token is cached when the settings name no value, as in keystonemiddleware.
pub const KEYSTONE_CACHE_DEFAULT: u32 = 300;
/// Min and max seconds that an operator may set for [`KEYSTONE_CACHE_DEFAULT`].
pub const KEYSTONE_CACHE: (u32, u32) = (0, 3_600);
/// Max seconds of a request to Keystone when the settings name no value.
pub const KEYSTONE_TIMEOUT_DEFAULT: u32 = 5;
/// Min and max seconds that an operator may set for [`KEYSTONE_TIMEOUT_DEFAULT`].
pub const KEYSTONE_TIMEOUT: (u32, u32) = (1, 60);
