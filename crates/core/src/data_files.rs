//! The files of a data directory beside its stores, so that no store gets the name of one.

/// The identity of the replica, locked by its process.
pub const INSTANCE: &str = "instance";
/// The same identity, so that damage of one of the two is detected.
pub const INSTANCE_COPY: &str = "instance.copy";
/// [`INSTANCE_COPY`] until all of it is on disk.
pub const UNFINISHED_INSTANCE_COPY: &str = "instance.copy.unfinished";
/// The mark of the place of the directory.
pub const LOCATION: &str = "location";
/// [`LOCATION`] until all of it is on disk.
pub const UNFINISHED_LOCATION: &str = "location.unfinished";

/// All of them. None is a directory.
pub const ALL: [&str; 5] = [INSTANCE, INSTANCE_COPY, UNFINISHED_INSTANCE_COPY, LOCATION, UNFINISHED_LOCATION];
