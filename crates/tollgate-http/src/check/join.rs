//! A future that waits for several futures at the same time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A boxed future, as [`AsyncLimiter`](crate::AsyncLimiter) returns it.
type Boxed<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// Waits for a few futures at the same time; the outputs are in the order of the futures.
///
/// On each wake, all futures that are not ready are polled: a layer has at most 16 limits.
pub(crate) struct Join<'f, T> {
    under_way: Vec<Option<Boxed<'f, T>>>,
    outputs: Vec<Option<T>>,
}

impl<'f, T> Join<'f, T> {
    pub(crate) fn new(futures: impl Iterator<Item = Boxed<'f, T>>) -> Self {
        let under_way: Vec<_> = futures.map(Some).collect();
        let outputs = under_way.iter().map(|_| None).collect();
        Self { under_way, outputs }
    }
}

impl<T: Unpin> Future for Join<'_, T> {
    type Output = Vec<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Vec<T>> {
        let Self { under_way, outputs } = &mut *self;
        for (slot, output) in under_way.iter_mut().zip(outputs.iter_mut()) {
            if let Some(future) = slot
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
                *slot = None;
            }
        }
        if under_way.iter().any(Option::is_some) {
            return Poll::Pending;
        }
        Poll::Ready(outputs.drain(..).flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, poll_fn, ready};
    use std::task::Waker;

    #[test]
    fn outputs_come_in_the_order_of_the_futures_and_when_all_are_ready() {
        let mut polled = 0;
        let later = poll_fn(move |_| {
            polled += 1;
            if polled < 3 { Poll::Pending } else { Poll::Ready('a') }
        });
        let mut join = Join::new([Box::pin(later) as Boxed<'_, char>, Box::pin(ready('b'))].into_iter());
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = || Pin::new(&mut join).poll(&mut context);
        assert_eq!([poll(), poll(), poll()], [Poll::Pending, Poll::Pending, Poll::Ready(vec!['a', 'b'])]);
    }

    #[test]
    fn nothing_is_ready_at_once_and_what_never_ends_is_waited_for() {
        let mut context = Context::from_waker(Waker::noop());
        let mut none: Join<'_, u8> = Join::new(std::iter::empty());
        assert_eq!(Pin::new(&mut none).poll(&mut context), Poll::Ready(vec![]));
        let mut never = Join::new([Box::pin(pending()) as Boxed<'_, u8>, Box::pin(ready(1))].into_iter());
        assert_eq!(Pin::new(&mut never).poll(&mut context), Poll::Pending);
    }
}
