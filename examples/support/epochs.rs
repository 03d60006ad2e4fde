//! The training data, epoch by epoch. Order and random state of an epoch depend on the seed and the epoch's number
//! alone: runs on different backends see the same batches, and a resumed run goes on as if it had never stopped.

use std::{
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
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

use super::task::Task;

/// Sets the random state at the start of an epoch.
pub(crate) type Reseed = Arc<dyn Fn(u64) + Send + Sync>;

/// A loader that shuffles anew in each epoch.
///
/// Burn's own draws its shuffles from one sequence, which a resumed run would start again.
pub(crate) struct Epochs<T: Task, B: Backend> {
    dataset: Arc<dyn Dataset<T::Item>>,
    batch_size: usize,
    seed: u64,
    next: AtomicUsize,
    device: B::Device,
    reseed: Reseed,
}

impl<T: Task, B: Backend> Epochs<T, B> {
    /// Batches of `dataset` on `device`, from the epoch after `done` on.
    pub(crate) fn new(
        dataset: Arc<dyn Dataset<T::Item>>,
        batch_size: usize,
        (seed, done): (u64, usize),
        device: B::Device,
        reseed: Reseed,
    ) -> Self {
        Self {
            dataset,
            batch_size,
            seed,
            next: AtomicUsize::new(done),
            device,
            reseed,
        }
    }

    fn with(&self, dataset: Arc<dyn Dataset<T::Item>>, device: &B::Device) -> Arc<Self> {
        Arc::new(Self::new(
            dataset,
            self.batch_size,
            (self.seed, self.next.load(Ordering::Relaxed)),
            device.clone(),
            self.reseed.clone(),
        ))
    }
}

impl<T: Task, B: Backend> DataLoader<B, T::Batch<B>> for Epochs<T, B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<T::Batch<B>> + 'a> {
        let epoch = self.next.fetch_add(1, Ordering::Relaxed) as u64;
        let seed = self.seed.wrapping_add(epoch.wrapping_mul(SEED_STRIDE));
        (self.reseed)(seed);
        Box::new(Epoch::<T, B> {
            shuffled: ShuffledDataset::new(self.dataset.clone(), seed),
            position: 0,
            batch_size: self.batch_size,
            device: &self.device,
        })
    }

    fn num_items(&self) -> usize {
        self.dataset.len()
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, T::Batch<B>>> {
        self.with(self.dataset.clone(), device)
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, T::Batch<B>>> {
        let part = PartialDataset::new(self.dataset.clone(), start, end);
        self.with(Arc::new(part), &self.device)
    }
}

/// Keeps the epochs of neighbouring seeds apart: the odd number nearest to 2⁶⁴ over the golden ratio.
const SEED_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

struct Epoch<'a, T: Task, B: Backend> {
    shuffled: ShuffledDataset<Arc<dyn Dataset<T::Item>>, T::Item>,
    position: usize,
    batch_size: usize,
    device: &'a B::Device,
}

impl<T: Task, B: Backend> Iterator for Epoch<'_, T, B> {
    type Item = T::Batch<B>;

    fn next(&mut self) -> Option<T::Batch<B>> {
        let end = (self.position + self.batch_size).min(self.shuffled.len());
        let items: Vec<T::Item> = (self.position..end)
            .filter_map(|index| self.shuffled.get(index))
            .collect();
        self.position = end;
        (!items.is_empty()).then(|| T::batch(&items, self.device))
    }
}

impl<T: Task, B: Backend> DataLoaderIterator<T::Batch<B>> for Epoch<'_, T, B> {
    fn progress(&self) -> Progress {
        Progress::new(self.position, self.shuffled.len())
    }
}

/// Batches of `dataset` in its own order, for evaluation.
pub(crate) fn in_order<T: Task, B: Backend>(
    dataset: &Arc<dyn Dataset<T::Item>>,
    batch_size: usize,
    device: &B::Device,
) -> Arc<dyn DataLoader<B, T::Batch<B>>> {
    DataLoaderBuilder::new(TaskBatcher::<T>(PhantomData))
        .batch_size(batch_size)
        .set_device(device.clone())
        .build(dataset.clone())
}

struct TaskBatcher<T>(PhantomData<fn() -> T>);

impl<T: Task, B: Backend> Batcher<B, T::Item, T::Batch<B>> for TaskBatcher<T> {
    fn batch(&self, items: Vec<T::Item>, device: &B::Device) -> T::Batch<B> {
        T::batch(&items, device)
    }
}
