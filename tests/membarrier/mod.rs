//! Makes the system refuse `membarrier` to a thread, or pretend to execute it, as sandboxes do.

/// Makes the system refuse the call to this thread and to the threads that this thread starts.
/// Returns whether the system now refuses the call.
#[cfg(target_os = "linux")]
pub(crate) fn refuse() -> bool {
    set_answer(libc::EPERM) && is_refused()
}

/// Makes the system answer the call with 0, and do nothing, as the stub of a sandbox does. Applies
/// to this thread and to the threads that this thread starts. Returns whether the system now does
/// so.
#[allow(dead_code)]
#[cfg(target_os = "linux")]
pub(crate) fn pretend() -> bool {
    set_answer(0) && query() == 0
}

/// Makes the system answer the call with `error`, where 0 is success. A later answer replaces an
/// earlier one. Returns whether the system permits that.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn set_answer(error: libc::c_int) -> bool {
    use libc::{
        BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO,
    };
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let call = u32::try_from(libc::SYS_membarrier).unwrap();
    let answered = SECCOMP_RET_ERRNO | u32::try_from(error).unwrap();
    // The call's number is the first field.
    let mut filter = [
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call),
        step(BPF_RET | BPF_K, 0, 0, answered),
        step(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the arguments are numbers.
    let is_meek = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    // SAFETY: the filter is a program of four steps, which lives until the call returns.
    let is_set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } == 0;
    is_meek && is_set
}

/// Returns whether the system refuses the call to this thread.
#[cfg(target_os = "linux")]
pub(crate) fn is_refused() -> bool {
    query() < 0
}

/// Returns the commands of the call that the system supports, or a negative number if the system
/// refuses the call.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn query() -> libc::c_long {
    // SAFETY: the arguments are numbers.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) }
}

/// Other systems do not have this call.
#[cfg(not(target_os = "linux"))]
pub(crate) fn refuse() -> bool {
    false
}

/// Other systems do not have this call.
#[allow(dead_code)]
#[cfg(not(target_os = "linux"))]
pub(crate) fn pretend() -> bool {
    false
}

/// Other systems do not have this call, so they never refuse it.
#[allow(dead_code)]
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_refused() -> bool {
    true
}

/// Prints why a test is not done. In CI this is a failure.
pub(crate) fn not_done(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    println!("NOT DONE: {why}");
}
