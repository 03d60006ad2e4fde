//! Figures that may not be there yet when they are seen.

use std::any::Any;
use std::fmt;

use microscaling::Statistics;

use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::{PendingStatistics, StatisticsWords, TensorStatistics};

/// Statistics of a tensor's quantization. The figures may lie on a device still, or be computed by another thread:
/// [`read_all`](Self::read_all) reads the figures of many tensors in one transfer for each device.
pub struct ObservedStatistics(Figures);

enum Figures {
    Known(Box<Statistics>),
    Pending(PendingStatistics),
    OnDevice(Box<dyn DeviceWords>),
}

impl ObservedStatistics {
    pub(crate) fn of<B: MxKernels>(statistics: TensorStatistics<B>) -> Self {
        Self(match statistics {
            TensorStatistics::Known(statistics) => Figures::Known(Box::new(statistics)),
            TensorStatistics::Pending(statistics) => Figures::Pending(statistics),
            TensorStatistics::OnDevice(words) => Figures::OnDevice(Box::new(Of::<B>(words))),
        })
    }

    /// Whether they are there already.
    pub fn is_known(&self) -> bool {
        matches!(self.0, Figures::Known(_))
    }

    /// Whether another thread computes them.
    pub fn is_pending(&self) -> bool {
        matches!(self.0, Figures::Pending(_))
    }

    /// The figures; waits for the thread that computes them, or the device that they lie on.
    ///
    /// # Panics
    ///
    /// As [`read_all`](Self::read_all).
    pub fn read(self) -> Statistics {
        let read = Self::read_all(vec![self]).pop();
        read.expect("there are as many as there were")
    }

    /// The figures of many tensors, in the same order; waits until all are computed.
    ///
    /// # Panics
    ///
    /// If the thread that computes them did, or their device cannot be read.
    pub fn read_all(all: Vec<Self>) -> Vec<Statistics> {
        let mut read: Vec<Option<Statistics>> = Vec::with_capacity(all.len());
        let mut pending = Vec::new();
        let mut on_devices: Vec<(usize, Box<dyn DeviceWords>)> = Vec::new();
        for (at, one) in all.into_iter().enumerate() {
            read.push(None);
            match one.0 {
                Figures::Known(statistics) => read[at] = Some(*statistics),
                Figures::Pending(statistics) => pending.push((at, statistics)),
                Figures::OnDevice(words) => on_devices.push((at, words)),
            }
        }
        while let Some((_, first)) = on_devices.first() {
            let is_beside: Vec<bool> = {
                let others = on_devices.iter();
                others
                    .map(|(_, words)| first.is_beside(words.as_ref()))
                    .collect()
            };
            let mut is_beside = is_beside.into_iter();
            let (places, words): (Vec<_>, Vec<_>) = on_devices
                .extract_if(.., |_| is_beside.next().unwrap_or(false))
                .unzip();
            let mut words = words.into_iter();
            let first = words.next().expect("the first one is beside itself");
            let statistics = first.read(words.collect());
            for (at, statistics) in places.into_iter().zip(statistics) {
                read[at] = Some(statistics);
            }
        }
        for (at, statistics) in pending {
            read[at] = Some(statistics.read());
        }
        let read = read.into_iter();
        read.map(|one| one.expect("each was one of three kinds"))
            .collect()
    }
}

impl fmt::Debug for ObservedStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Figures::Known(_) => "Known",
            Figures::Pending(_) => "Pending",
            Figures::OnDevice(_) => "OnDevice",
        })
    }
}

/// Words on a device of any backend.
trait DeviceWords: Send {
    fn as_any(&self) -> &dyn Any;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
    /// Whether other words lie on the same device.
    fn is_beside(&self, other: &dyn DeviceWords) -> bool;
    /// The figures of these words and of others that lie beside them.
    fn read(self: Box<Self>, others: Vec<Box<dyn DeviceWords>>) -> Vec<Statistics>;
}

struct Of<B: MxKernels>(StatisticsWords<B>);

impl<B: MxKernels> DeviceWords for Of<B> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn is_beside(&self, other: &dyn DeviceWords) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| other.0.device() == self.0.device())
    }

    fn read(self: Box<Self>, others: Vec<Box<dyn DeviceWords>>) -> Vec<Statistics> {
        let others = others.into_iter().map(|other| {
            let other = other.into_any().downcast::<Self>();
            other.expect("they lie beside these").0
        });
        StatisticsWords::read(core::iter::once(self.0).chain(others).collect())
    }
}
