//! Waiting in tests: for something to happen, with a bound; or for time to pass, where the passing
//! of time is what is tested. The only place of these tests that sleeps and reads a clock.

#![expect(
    clippy::disallowed_methods,
    reason = "tests on real servers wait in real time, and all of them wait here"
)]

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

/// Far more than anything takes that is to happen at once, even on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Lets time pass.
pub(crate) async fn pass(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Lets time pass with this thread, and the runtime on it, standing still.
pub(crate) fn block_thread(duration: Duration) {
    std::thread::sleep(duration);
}

/// What a future brings, which has to come within [`SOON`].
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    within(SOON, what, future).await
}

/// What a future brings, which has to come within `bound`.
pub(crate) async fn within<F: Future>(bound: Duration, what: &str, future: F) -> F::Output {
    let output = tokio::time::timeout(bound, future).await;
    output.unwrap_or_else(|_| panic!("still not so after {bound:?}: {what}"))
}

/// Looks again and again, for at most [`SOON`], until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let watch = Stopwatch::start();
    while !condition().await {
        assert!(watch.elapsed() < SOON, "still not so after {SOON:?}: {what}");
        pass(LOOK_AGAIN).await;
    }
}

/// Starts a future and lets it go on by itself. When this returns it has been polled once: one
/// that waits in a line has its place.
pub(crate) async fn start<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut future = Box::pin(future);
    let first = poll_once(future.as_mut()).await;
    tokio::spawn(async move {
        match first {
            Poll::Ready(output) => output,
            Poll::Pending => future.await,
        }
    })
}

/// Polls a future once, and leaves it at that.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// Measures real time.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

const LOOK_AGAIN: Duration = ms(10);
