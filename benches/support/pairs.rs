//! Times of self and peer, in turn.

use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::seconds::seconds;

/// How long to measure.
#[derive(clap::Args)]
pub(crate) struct Times {
    /// Seconds to measure each figure for
    #[arg(long, default_value = "3", value_parser = seconds)]
    seconds: Duration,
}

/// Median milliseconds of self and peer, and the median of the pairs' ratios.
#[derive(Serialize)]
pub(crate) struct Time {
    ms: f64,
    #[serde(flatten)]
    peer: Option<PeerTime>,
}

#[derive(Serialize)]
struct PeerTime {
    peer_ms: f64,
    ratio: f64,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ms, peer } = self;
        write!(f, "{ms:9.3} ms")?;
        match peer {
            Some(PeerTime { peer_ms, ratio }) => {
                write!(f, ", peer {peer_ms:9.3} ms, ratio {ratio:.3}")
            }
            None => Ok(()),
        }
    }
}

impl Times {
    /// Alternates `own` and `peer`, if there is one.
    pub(crate) fn pairs(&self, mut own: impl FnMut(), mut peer: Option<impl FnMut()>) -> Time {
        let time = |f: &mut dyn FnMut()| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64() * 1e3
        };
        for _ in 0..3 {
            own();
            peer.iter_mut().for_each(|peer| peer());
        }
        let end = Instant::now() + self.seconds;
        let mut samples = Vec::new();
        while Instant::now() < end || samples.len() < 5 {
            let own = time(&mut own);
            samples.push((own, peer.as_mut().map_or(f64::NAN, |peer| time(peer))));
        }
        let median = |value: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = samples.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Time {
            ms: median(|pair| pair.0),
            peer: peer.is_some().then(|| PeerTime {
                peer_ms: median(|pair| pair.1),
                ratio: median(|pair| pair.0 / pair.1),
            }),
        }
    }
}
