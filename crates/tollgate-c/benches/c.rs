//! Measures the cost of a check through the C library, next to the same check in Rust.
//!
//! `make bench-c` builds the shared library and passes its path. The program loads the library as a
//! C program does, so each call goes through a pointer into code that this program's compiler has
//! not seen.
//!
//! The benchmark uses one thread, one key and the default clock. The subjects take turns of about
//! fifty microseconds each. Every ratio or difference compares two turns of the same round, so that
//! a busy machine slows down both. The program prints the medians and the tenth and ninetieth
//! percentiles.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::Instant;
use std::{env, ptr};
use tollgate::{Decision, Limiter, Quota};
use tollgate_c::{tollgate_decision, tollgate_limiter, tollgate_options};

const ROUNDS: usize = 1_001;
const CALLS: u32 = 2_000;
/// A quota that one thread cannot use up.
const AMPLE: &str = "1000000000/s burst 1000";
const USED_UP: &str = "1/d";
const KEY: &[u8] = b"alice@example.com";

type New = unsafe extern "C" fn(
    *const c_char,
    *const tollgate_options,
    *mut *mut tollgate_limiter,
    *mut c_char,
    usize,
) -> c_int;
type Check =
    unsafe extern "C" fn(*const tollgate_limiter, *const c_void, usize, *mut tollgate_decision) -> c_int;
type CheckNumber = unsafe extern "C" fn(*const tollgate_limiter, u64, u64, *mut tollgate_decision) -> c_int;

/// The functions of the shared library.
struct Library {
    new: New,
    check: Check,
    check_u64: CheckNumber,
}

impl Library {
    fn load(path: &str) -> Self {
        let path = CString::new(path).expect("a path");
        // SAFETY: the path ends with 0, and loading runs no code of the library.
        let loaded = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!loaded.is_null(), "{path:?} cannot be loaded; `make bench-c` builds it");
        let find = |name: &str| {
            let name = CString::new(name).expect("a name");
            // SAFETY: the library is loaded, and stays loaded.
            let found = unsafe { libc::dlsym(loaded, name.as_ptr()) };
            assert!(!found.is_null(), "{name:?} is not in the library");
            found
        };
        let (new, check, check_u64) =
            (find("tollgate_limiter_new"), find("tollgate_check"), find("tollgate_check_u64"));
        // SAFETY: the function has this type according to the header. The same holds for the next
        // two.
        let new = unsafe { std::mem::transmute::<*mut c_void, New>(new) };
        // SAFETY: see above.
        let check = unsafe { std::mem::transmute::<*mut c_void, Check>(check) };
        // SAFETY: see above.
        let check_u64 = unsafe { std::mem::transmute::<*mut c_void, CheckNumber>(check_u64) };
        Self { new, check, check_u64 }
    }

    /// Creates a limiter, which the program does not free.
    fn limiter(&self, quota: &str) -> *const tollgate_limiter {
        let (quota, mut limiter) = (CString::new(quota).expect("a quota"), ptr::null_mut());
        // SAFETY: the quota ends with 0, and there is a place for the handle.
        let result = unsafe { (self.new)(quota.as_ptr(), ptr::null(), &raw mut limiter, ptr::null_mut(), 0) };
        assert_eq!(result, 0);
        limiter
    }
}

/// Repeats a call for one turn, and returns the nanoseconds per call.
type Subject<'l> = Box<dyn FnMut() -> f64 + 'l>;

fn subject<'l, T>(mut call: impl FnMut() -> T + 'l) -> Subject<'l> {
    Box::new(move || {
        let begin = Instant::now();
        for _ in 0..CALLS {
            black_box(call());
        }
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    })
}

/// Computes the figures of a C decision in Rust.
fn figures_of(decision: &Decision) -> impl Sized + use<> {
    let waits = (decision.retry_after(), decision.reset_after(), decision.start_after());
    (decision.outcome(), decision.charged(), decision.capacity(), decision.remaining(), waits)
}

/// Returns a percentile of the figures.
fn percentile(figures: &mut [f64], percent: usize) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[(figures.len() - 1) * percent / 100]
}

fn main() {
    let path = env::args().nth(1).filter(|path| path.contains(".so")).expect("the path of the library");
    let library = Library::load(&path);
    let mut place = MaybeUninit::<tollgate_decision>::uninit();
    // SAFETY: the first field of the decision.
    unsafe { place.as_mut_ptr().cast::<usize>().write(size_of::<tollgate_decision>()) };
    let decision = place.as_mut_ptr();
    let (check, check_u64) = (library.check, library.check_u64);

    for (title, quota) in [("admitted", AMPLE), ("denied", USED_UP)] {
        let rust: Limiter<[u8]> =
            Limiter::builder(quota.parse::<Quota>().expect("a quota")).build().expect("a valid limiter");
        let (c, number) = (library.limiter(quota), 7_u64);
        let bytes = |key: &[u8], decision| {
            // SAFETY: the limiter is live, the bytes are a key, and the decision states its size or
            // is null.
            unsafe { check(c, key.as_ptr().cast(), key.len(), decision) }
        };
        // SAFETY: see above.
        let eight = |decision| unsafe { check_u64(c, black_box(number), 1, decision) };
        let _ = (rust.check(KEY), rust.check(&number.to_ne_bytes()[..]));
        let _ = (bytes(KEY, ptr::null_mut()), eight(ptr::null_mut()));

        // The number is the index of the Rust subject with which the subject is compared.
        let mut subjects: [(&str, usize, Subject<'_>); 7] = [
            ("17 bytes, Rust", 0, subject(|| rust.check(black_box(KEY)).is_allowed())),
            ("17 bytes, Rust, all figures", 0, subject(|| figures_of(&rust.check(black_box(KEY))))),
            ("17 bytes, C", 0, subject(|| bytes(black_box(KEY), ptr::null_mut()))),
            ("17 bytes, C, with a decision", 0, subject(|| bytes(black_box(KEY), decision))),
            ("8 bytes, Rust", 4, subject(|| rust.check(&black_box(number).to_ne_bytes()[..]).is_allowed())),
            ("8 bytes, C, tollgate_check_u64", 4, subject(|| eight(ptr::null_mut()))),
            ("8 bytes, C, with a decision", 4, subject(|| eight(decision))),
        ];
        let rounds: Vec<Vec<f64>> =
            (0..ROUNDS).map(|_| subjects.iter_mut().map(|(_, _, turn)| turn()).collect()).collect();
        println!("{title:34}      ns    times of Rust (10 % .. 90 %)    ns more than Rust");
        for (index, (name, beside, _)) in subjects.iter().enumerate() {
            let of = |figure: fn(f64, f64) -> f64| {
                let mut figures: Vec<_> =
                    rounds.iter().map(|round| figure(round[index], round[*beside])).collect();
                [10, 50, 90].map(|percent| percentile(&mut figures, percent))
            };
            let [_, nanos, _] = of(|one, _| one);
            let [low, ratio, high] = of(|one, beside| one / beside);
            let [least, more, most] = of(|one, beside| one - beside);
            println!(
                "  {name:32} {nanos:7.1}    {ratio:.2} ({low:.2} .. {high:.2})    {more:5.1} ({least:.1} .. {most:.1})"
            );
        }
    }
}
