//! What is asked again and again by what watches the service: load balancers, orchestrators, scrapers.

/// Whether a restart would help.
pub const LIVENESS: &str = "/livez";
/// Whether clients should ask this replica, by its own name and by Zaqar's.
pub const READINESS: [&str; 2] = ["/readyz", "/v2/ping"];
/// How it does, in figures.
pub const METRICS: &str = "/metrics";

/// Whether a path asks how the service is, and tells nothing else.
pub fn is_health(path: &str) -> bool {
    path == LIVENESS || READINESS.contains(&path)
}

/// Whether a path is one of what watches the service.
pub fn is_probe(path: &str) -> bool {
    is_health(path) || path == METRICS
}
