//! Paths that monitoring requests again and again: load balancers, orchestrators, scrapers.

/// Path of the liveness probe: it fails if a restart would help.
pub const LIVENESS: &str = "/livez";
/// Paths of the readiness probe, by the name of this service and by Zaqar's: it fails if clients should use another
/// replica.
pub const READINESS: [&str; 2] = ["/readyz", "/v2/ping"];
/// Path of the metrics.
pub const METRICS: &str = "/metrics";

/// Whether a path is a liveness or readiness probe.
pub fn is_health(path: &str) -> bool {
    path == LIVENESS || READINESS.contains(&path)
}

/// Whether a path is a probe or the metrics.
pub fn is_probe(path: &str) -> bool {
    is_health(path) || path == METRICS
}
