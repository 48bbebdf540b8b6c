//! What a load generator counted, whichever it is.

/// Told by the programs that are ours as a line of whole numbers: `counted`, then the fields in this order, times
/// in µs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counted {
    pub(crate) requests: f64,
    pub(crate) seconds: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Connections and requests that failed, and answers of 400 and above.
    pub(crate) errors: u64,
}

impl Counted {
    /// Finds the line in what a program said; `None` where it counted nothing.
    pub(crate) fn find(said: &str) -> Option<Self> {
        let line = said.lines().find_map(|line| line.strip_prefix("counted "))?;
        let numbers: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [requests, microseconds, p50, p99, _] = numbers[..] else { return None };
        let errors = line.rsplit(' ').next()?.parse().ok()?;
        let (p50_ms, p99_ms) = (p50 / 1e3, p99 / 1e3);
        (requests > 0.0).then_some(Self { requests, seconds: microseconds / 1e6, p50_ms, p99_ms, errors })
    }
}

/// The value below which so many hundredths of them are; 0 of none. Sorts them.
pub(crate) fn percentile(values: &mut [u32], hundredths: usize) -> u32 {
    values.sort_unstable();
    values.get(values.len() * hundredths / 100).copied().unwrap_or_default()
}
