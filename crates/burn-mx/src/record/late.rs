//! Figures that are not there yet when they are seen: those that lie on a device are read when their step is over, in one
//! transfer a device; those that other threads compute when they are written down.

use std::any::Any;

use microscaling::Statistics;

use crate::kernels::{MxKernels, PendingStatistics, StatisticsWords, TensorStatistics};

/// The statistics of a tensor, or of several taken together, some of which may not be there yet.
pub(super) struct Deferred(Vec<Piece>);

enum Piece {
    Known(Box<Statistics>),
    Pending(PendingStatistics),
    /// The place among the step's batches, and in the batch.
    OnDevice(usize, usize),
}

impl Deferred {
    /// Takes the elements of another tensor in.
    pub(super) fn merge(&mut self, other: Self) {
        for piece in other.0 {
            match (self.0.last_mut(), piece) {
                (Some(Piece::Known(known)), Piece::Known(other)) => known.merge(*other),
                (_, piece) => self.0.push(piece),
            }
        }
    }
}

/// What of a step is not there yet.
#[derive(Default)]
pub(super) struct Late {
    on_devices: Vec<Box<dyn Batch>>,
    pending: bool,
}

impl Late {
    /// Whether there is nothing to do but to wait for other threads.
    pub(super) fn is_pending(&self) -> bool {
        self.pending && self.on_devices.is_empty()
    }

    pub(super) fn add<B: MxKernels>(&mut self, statistics: TensorStatistics<B>) -> Deferred {
        let words = match statistics {
            TensorStatistics::Known(statistics) => {
                return Deferred(vec![Piece::Known(Box::new(statistics))]);
            }
            TensorStatistics::Pending(statistics) => {
                self.pending = true;
                return Deferred(vec![Piece::Pending(statistics)]);
            }
            TensorStatistics::OnDevice(words) => words,
        };
        let device = words.device();
        let mut batches = self.on_devices.iter_mut().map(|batch| batch.as_any());
        let known = batches.position(|batch| {
            let batch = batch.downcast_mut::<OnDevice<B>>();
            batch.is_some_and(|batch| batch.device == device)
        });
        let place = known.unwrap_or_else(|| {
            let words = Vec::new();
            self.on_devices
                .push(Box::new(OnDevice::<B> { device, words }));
            self.on_devices.len() - 1
        });
        let batch = self.on_devices[place]
            .as_any()
            .downcast_mut::<OnDevice<B>>();
        let batch = batch.expect("it was looked for by its type");
        batch.words.push(words);
        Deferred(vec![Piece::OnDevice(place, batch.words.len() - 1)])
    }

    /// Waits for the devices.
    pub(super) fn read(self) -> Read {
        let batches = self.on_devices.into_iter().map(|batch| batch.read());
        Read(batches.collect())
    }
}

/// What lay on devices.
pub(super) struct Read(Vec<Vec<Statistics>>);

impl Read {
    pub(super) fn statistics(&mut self, deferred: Deferred) -> Statistics {
        let pieces = deferred.0.into_iter().map(|piece| match piece {
            Piece::Known(statistics) => *statistics,
            Piece::Pending(statistics) => statistics.read(),
            Piece::OnDevice(batch, place) => std::mem::take(&mut self.0[batch][place]),
        });
        pieces
            .reduce(|mut all, other| {
                all.merge(other);
                all
            })
            .unwrap_or_default()
    }
}

/// The words on a device, of whatever backend.
trait Batch: Send {
    fn as_any(&mut self) -> &mut dyn Any;
    fn read(self: Box<Self>) -> Vec<Statistics>;
}

struct OnDevice<B: MxKernels> {
    device: B::Device,
    words: Vec<StatisticsWords<B>>,
}

impl<B: MxKernels> Batch for OnDevice<B> {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn read(self: Box<Self>) -> Vec<Statistics> {
        StatisticsWords::read(self.words)
    }
}
