//! Backends that have the portable kernels, which go through host memory, as they are: the numbers are right, and the log
//! says once for each of them that it is so.

use super::MxKernels;

/// On the client's side: a device may be in another process or on another machine.
impl<R: burn_router::RunnerChannel + 'static> MxKernels for burn_router::BackendRouter<R> {}
