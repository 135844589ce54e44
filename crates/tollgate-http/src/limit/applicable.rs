//! The limits that apply to one request.

use super::any_limiter::{AnyLimiter, Bound, Shared, SharedBound};
use super::compiled::CompiledLimit;
use crate::class::lookup::Question;
use crate::head::RequestHead;
use crate::key::parts::KeyRef;
use crate::response::refusal::RefusalReason;
use futures_util::future::join_all;
use smallvec::SmallVec;
use tollgate::store::ToKey;

/// The number of limits that can be checked without an allocation.
pub(crate) const INLINE: usize = 4;

/// The limits that apply to a request, with the request's keys, costs and classes.
#[derive(Default)]
pub(crate) struct ApplicableLimits<'r> {
    pub(crate) local: SmallVec<[Bound<'r>; INLINE]>,
    pub(crate) shared: Vec<SharedBound<'r>>,
    /// Limits that are in neither list yet, because the caller's class is unknown.
    pub(crate) asking: Vec<Asking<'r>>,
}

/// A limit that refuses a request without counting it.
pub(crate) struct Refusing<'r> {
    pub(crate) limit: &'r CompiledLimit,
    /// The index of the caller's class; `None` if the request has no key, because the class is then
    /// unknown.
    pub(crate) class: Option<usize>,
    pub(crate) reason: RefusalReason,
    /// The blocked caller's key. The key is boxed, because most requests are not refused.
    pub(crate) key: Option<Box<KeyRef<'r>>>,
}

impl<'r> Refusing<'r> {
    /// Returns the refusal of a request without a key, or with several.
    pub(crate) fn unidentified(limit: &'r CompiledLimit, reason: RefusalReason) -> Self {
        Self { limit, class: None, reason, key: None }
    }

    /// Returns the refusal of a caller whose class is blocked.
    fn blocked(limit: &'r CompiledLimit, class: usize, key: KeyRef<'r>) -> Self {
        Self { limit, class: Some(class), reason: RefusalReason::Blocked, key: Some(Box::new(key)) }
    }

    /// Returns the name of the caller's class.
    pub(crate) fn class_name(&self) -> Option<&'r str> {
        self.limit.class(self.class?).name.as_deref()
    }
}

/// A limit, a request's key in this limit, and the lookup that determines the request's class.
pub(crate) struct Asking<'r> {
    number: usize,
    limit: &'r CompiledLimit,
    question: Question,
    key: KeyRef<'r>,
}

impl<'r> ApplicableLimits<'r> {
    /// Adds the limit with this index in the layer. `class` is the caller's class, or the question
    /// whose answer is the class.
    ///
    /// # Errors
    ///
    /// Returns the refusal if the class is blocked.
    pub(crate) fn add(
        &mut self,
        number: usize,
        limit: &'r CompiledLimit,
        class: Result<usize, Question>,
        key: KeyRef<'r>,
        head: RequestHead<'_>,
    ) -> Result<(), Refusing<'r>> {
        let class = match class {
            Ok(class) => class,
            Err(question) => {
                self.asking.push(Asking { number, limit, question, key });
                return Ok(());
            }
        };
        let backend = &limit.class(class).backend;
        let cost = limit.cost.of(head, || backend.capacity(&key));
        let limiter = match backend {
            AnyLimiter::Local(limiter) => {
                let permit = limiter.permit(&key);
                self.local.push(Bound { limit: number, class, limiter: &**limiter, permit, key, cost });
                return Ok(());
            }
            AnyLimiter::Unlimited => return Ok(()),
            AnyLimiter::Blocked => return Err(Refusing::blocked(limit, class, key)),
            AnyLimiter::Shared(limiter) => Shared::Rate(&**limiter),
            AnyLimiter::SharedInFlight(limit) => Shared::InFlight(&**limit),
        };
        self.shared.push(SharedBound { limit: number, class, limiter, key: key.to_key(), cost });
        Ok(())
    }

    /// Waits for all unknown classes at the same time, and then adds their limits. If a limiter
    /// does not have a class, `unknown` is called with the names of the limit and the class.
    /// Returns the limits whose class is blocked.
    pub(crate) async fn ask(
        &mut self,
        head: RequestHead<'_>,
        unknown: impl Fn(&str, &str),
    ) -> Vec<Refusing<'r>> {
        let mut refusing = Vec::new();
        let asking = std::mem::take(&mut self.asking);
        let classes = join_all(asking.iter().map(|it| it.question.clone())).await;
        for (Asking { number, limit, key, .. }, class) in asking.into_iter().zip(classes) {
            let class = limit.number_of(class.as_deref(), |class| unknown(&limit.name, class));
            refusing.extend(self.add(number, limit, Ok(class), key, head).err());
        }
        refusing
    }
}
