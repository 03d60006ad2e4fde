//! The training data, epoch by epoch. Order and random state of an epoch depend on the seed and the epoch's number
//! alone. So runs on different backends see the same batches, and a resumed run continues like an uninterrupted run.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use burn::{
    data::{
        dataloader::{
            DataLoader, DataLoaderBuilder, DataLoaderIterator, Progress, batcher::Batcher,
        },
        dataset::{
            Dataset,
            transform::{PartialDataset, ShuffledDataset},
        },
    },
    prelude::*,
};

use super::tasks::{Batch, Item, Task};

/// Sets the random state at the start of an epoch.
pub(crate) type Reseed = Arc<dyn Fn(u64) + Send + Sync>;

/// A loader that shuffles anew in each epoch.
///
/// Burn's own draws its shuffles from one sequence, which a resumed run would start again.
pub(crate) struct Epochs<B: Backend> {
    task: Task,
    dataset: Arc<dyn Dataset<Item>>,
    batch_size: usize,
    seed: u64,
    next: AtomicUsize,
    device: B::Device,
    reseed: Reseed,
}

impl<B: Backend> Epochs<B> {
    /// Batches of `dataset` on `device`, from the epoch after `done` on.
    pub(crate) fn new(
        task: Task,
        dataset: Arc<dyn Dataset<Item>>,
        batch_size: usize,
        (seed, done): (u64, usize),
        device: B::Device,
        reseed: Reseed,
    ) -> Self {
        Self {
            task,
            dataset,
            batch_size,
            seed,
            next: AtomicUsize::new(done),
            device,
            reseed,
        }
    }

    fn with(&self, dataset: Arc<dyn Dataset<Item>>, device: &B::Device) -> Arc<Self> {
        Arc::new(Self::new(
            self.task,
            dataset,
            self.batch_size,
            (self.seed, self.next.load(Ordering::Relaxed)),
            device.clone(),
            self.reseed.clone(),
        ))
    }
}

impl<B: Backend> DataLoader<B, Batch<B>> for Epochs<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Batch<B>> + 'a> {
        let epoch = self.next.fetch_add(1, Ordering::Relaxed) as u64;
        let seed = self.seed.wrapping_add(epoch.wrapping_mul(SEED_STRIDE));
        (self.reseed)(seed);
        Box::new(Epoch::<B> {
            task: self.task,
            shuffled: ShuffledDataset::new(self.dataset.clone(), seed),
            position: 0,
            batch_size: self.batch_size,
            device: &self.device,
        })
    }

    fn num_items(&self) -> usize {
        self.dataset.len()
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, Batch<B>>> {
        self.with(self.dataset.clone(), device)
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, Batch<B>>> {
        let part = PartialDataset::new(self.dataset.clone(), start, end);
        self.with(Arc::new(part), &self.device)
    }
}

/// Keeps the epochs of neighbouring seeds apart: the odd number nearest to 2⁶⁴ over the golden ratio.
const SEED_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

struct Epoch<'a, B: Backend> {
    task: Task,
    shuffled: ShuffledDataset<Arc<dyn Dataset<Item>>, Item>,
    position: usize,
    batch_size: usize,
    device: &'a B::Device,
}

impl<B: Backend> Iterator for Epoch<'_, B> {
    type Item = Batch<B>;

    fn next(&mut self) -> Option<Batch<B>> {
        let end = (self.position + self.batch_size).min(self.shuffled.len());
        let items: Vec<_> = (self.position..end)
            .filter_map(|index| self.shuffled.get(index))
            .collect();
        self.position = end;
        (!items.is_empty()).then(|| self.task.batch(&items, self.device))
    }
}

impl<B: Backend> DataLoaderIterator<Batch<B>> for Epoch<'_, B> {
    fn progress(&self) -> Progress {
        Progress::new(self.position, self.shuffled.len())
    }
}

/// Batches of `dataset` in its own order, for evaluation.
pub(crate) fn in_order<B: Backend>(
    task: Task,
    dataset: &Arc<dyn Dataset<Item>>,
    batch_size: usize,
    device: &B::Device,
) -> Arc<dyn DataLoader<B, Batch<B>>> {
    DataLoaderBuilder::new(task)
        .batch_size(batch_size)
        .set_device(device.clone())
        .build(dataset.clone())
}

impl<B: Backend> Batcher<B, Item, Batch<B>> for Task {
    fn batch(&self, items: Vec<Item>, device: &B::Device) -> Batch<B> {
        Task::batch(*self, &items, device)
    }
}
