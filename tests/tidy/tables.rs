//! What holds in this house, as plain data. A path is below `src/`, or begins with the name of a crate: `broker/slot.rs`
//! is `crates/broker/src/slot.rs`. Modules are written as in Rust, those of other crates with the name of the crate in
//! front. A row holds for all that is below its path, and the longest path wins. A row that is wrong is changed in a
//! commit of its own.

/// Which parts a part may name. Itself is always allowed.
pub const IMPORTS: &[(&str, &[&str])] = &[
    ("lib.rs", &[]),
    ("main.rs", &["commands"]),
    (
        "commands",
        &[
            "api::openapi",
            "backup",
            "bench",
            "client",
            "config",
            "core::time",
            "sealing",
            "server",
            "telemetry",
            "settings::units",
        ],
    ),
    // From outside only, so that it can drive any server that speaks the API.
    ("bench", &["settings::units"]),
    // What is documented: settings, bounds, errors.
    (
        "commands/docs",
        &["api::error_table", "client", "config", "core::limits", "server::limits", "settings::units"],
    ),
    ("commands/token.rs", &["config", "core"]),
    ("client", &["settings::spelling", "settings::units"]),
    ("config", &["core", "settings::files", "settings::spelling", "settings::units"]),
    ("settings", &[]),
    // The keys of attributes.
    ("client/attributes.rs", &["core::attributes", "settings::spelling"]),
    // A store that no service has open is read where it lies.
    // A backup is checked as it arrives.
    ("client/backup.rs", &["backup", "settings::units"]),
    ("client/doctor/store.rs", &["coordination", "core::queue", "journal", "storage"]),
    // Of coordination only the address of an ensemble, of placement the name of an algorithm: both are settings. Of
    // domain the defaults.
    ("config.rs", &["coordination::zookeeper", "core::limits", "engine::placement", "settings::units"]),
    ("config/zookeeper.rs", &["coordination::zookeeper"]),
    ("telemetry.rs", &["config"]),
    // The composition root knows the layers below it; what it is composed of does not.
    (
        "server/mod.rs",
        &[
            "api",
            "broker",
            "catalogue",
            "clock",
            "cluster",
            "config",
            "coordination",
            "core",
            "journal",
            "metrics",
            "engine::placement",
            "sealing",
            "storage",
            "telemetry",
        ],
    ),
    ("server/face.rs", &["api", "clock", "config", "core", "keystone"]),
    // Certificates are files.
    (
        "server/peers.rs",
        &[
            "broker",
            "cluster::identity",
            "cluster::limits",
            "cluster::peers",
            "cluster::tls",
            "cluster::trust",
            "config",
            "core",
            "settings::files",
        ],
    ),
    ("server/webhooks.rs", &["broker", "config", "core", "webhook"]),
    ("server/zookeeper.rs", &["config", "coordination"]),
    // Keys are a file, and a setting.
    ("server/sealing.rs", &["config", "sealing"]),
    ("server/tree.rs", &["catalogue", "clock", "config", "coordination", "core", "journal"]),
    // A backup is of the stores below the service, and a restore makes them.
    (
        "server/backup.rs",
        &["backup", "broker", "catalogue", "clock", "coordination", "core", "journal", "metrics", "storage"],
    ),
    ("server/restore.rs", &["backup", "catalogue", "clock", "coordination", "core", "journal", "sealing"]),
    ("server", &["budget", "core", "metrics"]),
    // Certificates are files.
    ("server/tls.rs", &["settings::files"]),
    ("budget.rs", &[]),
    ("budget", &[]),
    ("api", &["broker", "core", "metrics"]),
    // The one place that asks Keystone.
    ("api/pipeline/credentials.rs", &["core", "keystone", "metrics"]),
    ("api/pipeline/bodies.rs", &["budget", "core"]),
    // Of the clock only the handle: rates are by the second.
    ("api/mod.rs", &["broker", "clock", "core", "metrics"]),
    ("api/pipeline/admission.rs", &["clock", "core"]),
    // The clock judges dates of signatures.
    ("api/sqs/endpoint.rs", &["broker", "clock", "core", "metrics"]),
    // Of the cluster only the way to the other replicas: where a queue is served is the broker's to say.
    ("api/pipeline/forward", &["broker", "cluster::peers", "core", "metrics"]),
    // How a connection has shown that it is one of a replica.
    ("api/pipeline/forward/peer.rs", &["cluster::identity", "cluster::peers", "cluster::trust", "core"]),
    ("api/front.rs", &["broker", "cluster::trust", "metrics"]),
    ("api/peer.rs", &["broker", "cluster::peer_client", "core"]),
    (
        "broker",
        &[
            "catalogue",
            "clock",
            "cluster",
            "core",
            "engine",
            "filter",
            "metrics",
            "engine::placement",
            "storage",
        ],
    ),
    // What is recorded of the time is the clock's to say.
    ("catalogue/time.rs", &["clock", "coordination", "core"]),
    ("catalogue", &["coordination", "core"]),
    // The one part of the tree that knows sealed values.
    ("catalogue/lib.rs", &["coordination", "core", "sealing"]),
    ("catalogue/sealed_tree.rs", &["coordination", "core", "sealing"]),
    ("catalogue/sealing.rs", &["coordination", "core", "sealing"]),
    // Keys are a file.
    ("sealing", &["settings::files"]),
    ("cluster", &["catalogue", "core", "engine::placement"]),
    ("engine/placement", &[]),
    ("engine", &["core"]),
    ("filter", &["core"]),
    // Of the service it knows networks, and bounds that the API checks too.
    ("webhook", &["core::limits", "core::network"]),
    // Certificates and secrets are files. The clock judges when tokens expire.
    ("keystone", &["clock", "core", "settings::files", "metrics"]),
    // Names of queues, and bounds.
    ("metrics", &["core"]),
    ("storage", &["core"]),
    ("storage/embedded", &["core", "journal"]),
    // Of the clock only its test.
    ("storage/embedded/audit.rs", &["clock", "core", "journal"]),
    // Certificates are files.
    ("storage/postgres", &["core", "settings::files"]),
    ("storage/redis", &["core", "settings::files"]),
    ("storage/open.rs", &["clock", "core", "journal"]),
    ("coordination", &["core"]),
    ("coordination/embedded", &["core", "journal"]),
    // Certificates and logins are files.
    ("coordination/zookeeper", &["clock", "core", "settings::files"]),
    ("journal", &["clock", "core"]),
    // Of the domain only the files that no journal may replace.
    ("backup", &["core::data_files", "journal"]),
    ("clock/lib.rs", &["core"]),
    ("clock", &["core"]),
    ("core/error.rs", &["core"]),
    ("core", &[]),
];

/// Parts that may not name modules of their own part, but in the one file that is given: the seam between them.
pub const SEAMS: &[(&str, &str, &[&str])] =
    &[("api/pipeline", "api/pipeline/protocol.rs", &["api::rest", "api::sqs", "api::v2"])];

/// The components of the broker, from below: each names only those of the rows before its own.
pub const COMPONENTS: &[&[&str]] = &[
    &["limits"],
    &["replica"],
    &["stores", "ledger"],
    &["writer"],
    &["slot"],
    &["slots"],
    &["pools"],
    &["quotas", "holds", "backup"],
    &["open_queues"],
    &["messages", "transfer", "migration", "counting"],
    &["claims", "queues"],
    &["webhooks"],
    &["explain", "redrive", "balance", "subscriptions", "sweeps", "health"],
    &["reports"],
    &["background"],
    &["start", "broker"],
];

/// Drivers, and the one file that names each. Everybody else has the handle over its trait.
pub const DRIVERS: &[(&str, &str)] = &[
    ("storage::embedded", "storage/open.rs"),
    ("storage::postgres", "storage/open.rs"),
    ("storage::redis", "storage/open.rs"),
    ("coordination::embedded", "server/mod.rs"),
];

/// Parts that never wait, read a clock or roll dice: time and randomness are arguments there.
pub const PURE: &[&str] = &["core", "engine", "filter"];

/// What waits, reads a clock or rolls dice.
pub const IMPURE: &[&str] = &[
    "async",
    ".await",
    "Instant::now",
    "SystemTime",
    "Timestamp::now",
    "Zoned::now",
    "thread_rng",
    "rand::rng",
    "rand::random",
    "from_os_rng",
    "new_v4",
];

/// Parts that run under a simulated clock: they take time and randomness from the handles of their replica, and state the
/// order in which the branches of a `select!` are looked at.
pub const DETERMINED: &[&str] = &["broker", "catalogue", "cluster", "engine"];

/// Sources of time and randomness that no seed determines.
pub const AMBIENT: &[&str] =
    &["SystemTime", "thread_rng", "rand::rng", "rand::random", "from_os_rng", "new_v4"];

/// Types of std whose values no seed determines, with their modules, and what has them instead.
pub const AMBIENT_TYPES: &[(&str, &str, &str)] = &[
    ("std::time", "Instant", "tokio"),
    ("std::collections", "HashMap", "core::maps"),
    ("std::collections", "HashSet", "core::maps"),
];

/// The files that make the handles.
pub const HANDLES: &[&str] = &["cluster/random.rs"];

/// What no commit leaves behind.
pub const UNFINISHED: &[&str] = &["todo!(", "unimplemented!(", "dbg!(", "#[ignore"];

/// Words that name no job, in files, folders and modules: what has no home has no name yet.
pub const EMPTY_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "misc", "manager", "service", "base"];

/// Lines of a file. Past it a file is split by subject.
pub const LINES: usize = 500;
