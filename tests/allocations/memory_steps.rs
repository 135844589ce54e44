//! Memory is allocated and freed in small steps.

use crate::alone;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;
use tollgate::{Limiter, ManualClock, Quota, Tick};

/// The number of resident pages of this process. The file stays open because it is read very often.
fn pages(statm: &File) -> i64 {
    let mut text = [0; 128];
    let length = statm.read_at(&mut text, 0).unwrap();
    let text = std::str::from_utf8(&text[..length]).unwrap();
    text.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Disables or enables huge pages for the process, because one huge page is larger than a step.
/// (Systems that refuse this have no huge pages.)
fn without_huge_pages(without: bool) {
    // SAFETY: the arguments are numbers.
    #[allow(unsafe_code)]
    let _ = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, libc::c_ulong::from(without), 0, 0, 0) };
}

/// Enables huge pages for the process when this value is dropped.
struct WithoutHugePages;

impl WithoutHugePages {
    fn new() -> Self {
        without_huge_pages(true);
        Self
    }
}

impl Drop for WithoutHugePages {
    fn drop(&mut self) {
        without_huge_pages(false);
    }
}

/// The size of a page, in bytes.
fn page_size() -> usize {
    // SAFETY: the argument is a number.
    #[allow(unsafe_code)]
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap()
}

/// A table of this many keys occupies 15 megabytes, which are allocated and freed while the table
/// grows, forgets keys and shrinks. No call allocates or frees that much in one step, because the
/// call would stall for milliseconds.
#[test]
fn no_call_takes_or_gives_back_a_large_table_at_once() {
    const KEYS: u64 = 300_000;
    let (_alone, _small) = (alone(), WithoutHugePages::new());
    let builder = Limiter::builder(Quota::per_second(1)).max_keys(1_200_000).clock(ManualClock::new());
    let limiter: Limiter<u64> = builder.build().unwrap();
    let statm = File::open("/proc/self/statm").unwrap();
    let (mut before, mut most, mut least) = (pages(&statm), 0, 0);
    let mut look = || {
        let after = pages(&statm);
        (most, least) = (most.max(after - before), least.min(after - before));
        before = after;
    };
    let mut check = |key: u64, second: u64| {
        assert!(limiter.at(Tick::ZERO + Duration::from_secs(second)).check(&key).is_allowed());
        look();
    };
    (0..KEYS).for_each(|key| check(key, 0));
    let full = pages(&statm);
    assert!(limiter.stats().evicted == 0 && limiter.stats().bytes > 15_000_000, "{:?}", limiter.stats());
    // Each step inserts a new key.
    let steps = (KEYS..).take_while(|_| limiter.at(Tick::ZERO + Duration::from_secs(10)).sweep(64));
    steps.for_each(|key| check(key, 10));
    assert!(limiter.stats().evicted >= KEYS, "{:?}", limiter.stats());
    // The table is now far too large, and has been too large for more than a minute.
    (0..KEYS).for_each(|key| check(key, 100 + key));
    assert!(limiter.stats().bytes < 1 << 20, "{:?}", limiter.stats());
    let left = full - pages(&statm);
    println!("{most} pages at once at the most, {} given back at once, {left} of {full} in all", -least);
    assert!(left > 2_500, "{left} of {full} pages: were they the table's?");
    // The allocator keeps tables of less than 512 KiB. (The system counts pages for each processor,
    // and only occasionally adds up the counts.)
    const FEW: i64 = 256 + 128;
    assert!(most < FEW && least > -FEW, "{most} pages taken at once, {} given back", -least);
}

/// Makes the system refuse this thread's requests to populate memory, as Linux before 5.14 does.
/// Returns whether the system refuses them now.
#[allow(unsafe_code)]
fn refuse() -> bool {
    use libc::{
        BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO,
    };
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let call = u32::try_from(libc::SYS_madvise).unwrap();
    let number = |n: libc::c_int| u32::try_from(n).unwrap();
    // The arguments of the call are eight bytes each. They follow the call's number, the kind of
    // system and the caller's address. This is the offset of the low half of the third argument.
    let advice = 16 + 2 * 8 + if cfg!(target_endian = "big") { 4 } else { 0 };
    let mut filter = [
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, call),
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, advice),
        step(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, number(libc::MADV_POPULATE_WRITE)),
        step(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | number(libc::EINVAL)),
        step(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
    // SAFETY: the arguments are numbers.
    let is_meek = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    // SAFETY: the filter is a program of six steps, which lives until the call returns.
    let is_set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } == 0;
    // SAFETY: the range has no bytes.
    let answer = unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_POPULATE_WRITE) };
    is_meek && is_set && answer < 0
}

/// A sweep populates the memory of the next table in small parts, without the help of the system.
/// If one call populated megabytes, other threads that map memory would wait for this call.
#[test]
fn a_sweep_has_memory_come_ahead_where_none_can_be_asked_for() {
    const KEYS: u64 = 300_000;
    let (_alone, _small) = (alone(), WithoutHugePages::new());
    let sweep = || {
        if !refuse() {
            assert!(
                std::env::var_os("CI").is_none(),
                "the system does not let a thread refuse itself a call"
            );
            println!("NOT DONE: the system does not let a thread refuse itself a call");
            return;
        }
        let builder = Limiter::builder(Quota::per_hour(1)).max_keys(300_000).clock(ManualClock::new());
        let limiter: Limiter<u64> = builder.build().unwrap();
        assert!((0..KEYS).all(|key| limiter.at(Tick::ZERO).check(&key).is_allowed()));
        let now = Tick::ZERO + Duration::from_secs(10);
        while limiter.at(Tick::ZERO).sweep(16) {}
        let statm = File::open("/proc/self/statm").unwrap();
        let before = pages(&statm);
        assert!(limiter.at(now).sweep(1024));
        let come = usize::try_from(pages(&statm) - before).unwrap();
        // About four megabytes are populated. (The keys that are moved meanwhile need only five
        // pages.)
        assert!((800 << 12..1_200 << 12).contains(&(come * page_size())), "{come} pages");
        while limiter.at(now).sweep(1024) {}
        assert_eq!(limiter.len() as u64, KEYS);
        assert!((0..KEYS).all(|key| !limiter.at(now).check(&key).is_allowed()));
    };
    thread::spawn(sweep).join().unwrap();
}
