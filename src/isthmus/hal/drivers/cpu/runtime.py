"""The native runtime: walks command lists and spreads launches over threads.

It is LLVM IR text, compiled for the host once and kept on disk. `isthmus_step` runs every command
of a list without coming back to Python. A launch of several programs goes through
`GOMP_parallel` of libgomp, so that one pool serves this runtime and PyTorch, or through a pool
of its own: Python threads that live in `isthmus_worker`, spin for a moment after each launch and
then sleep on a futex. Threads take chunks of programs from an atomic counter; which thread runs
which program never changes a result.

The own pool has a gate, one 64-bit word: the upper half counts up each time the gate opens (odd:
open) and closes (even), the lower half counts the workers inside. Workers enter an open gate by
compare-and-swap; whoever starts a launch opens the gate, takes chunks as well, closes it when none
is left and waits only for the workers inside. A worker that sleeps or lost its core never
holds up a launch.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

import numpy as np

__all__ = [
    "COMMAND", "COPY", "FILL", "HOST_CALLS", "LAUNCH", "POOL", "THREADING", "HostCalls",
    "runtime_ir",
]  # fmt: skip

LAUNCH, COPY, FILL = 0, 1, 2

#: One command. Copies: entry is the target, args the source. Fills: chunk is the byte.
COMMAND = np.dtype(
    [
        ("entry", np.uint64),
        ("args", np.uint64),
        ("grid", np.int32, (3,)),
        ("kind", np.int32),
        ("total", np.int64),
        ("chunk", np.int64),
    ],
    align=True,
)

#: How launches are threaded; mode 0 runs all in the calling thread, 1 libgomp, 2 own pool.
THREADING = np.dtype(
    [
        ("mode", np.int32),
        ("threads", np.int32),
        ("gomp_parallel", np.uint64),
        ("thread_number", np.uint64),
        ("pool", np.uint64),
        ("scratch", np.uint64),
        ("scratch_stride", np.int64),
    ],
    align=True,
)

#: Shared words of the own pool, each on a cache line of its own.
POOL = np.dtype(
    {
        "names": ["gate", "sleepers", "job", "stop"],
        "formats": [np.uint64, np.int32, np.uint64, np.int32],
        "offsets": [0, 64, 128, 192],
        "itemsize": 256,
    }
)


@dataclass(frozen=True, slots=True)
class HostCalls:
    """What the runtime needs to know of Linux on one machine.

    futex, sched_yield: system call numbers, 0 where the own pool is not available.
    pause: the LLVM instruction that tells the core it is spinning, and its declaration.
    """

    futex: int
    sched_yield: int
    pause: tuple[str, str] = ("", "")


_KNOWN_HOSTS = {
    "x86_64": HostCalls(
        202, 24, ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()")
    ),
    "aarch64": HostCalls(
        98, 124, ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)")
    ),
    "riscv64": HostCalls(98, 124),
    "loongarch64": HostCalls(98, 124),
}
HOST_CALLS = (
    _KNOWN_HOSTS.get(platform.machine(), HostCalls(0, 0))
    if platform.system() == "Linux"
    else HostCalls(0, 0)
)


def runtime_ir(host: HostCalls = HOST_CALLS) -> str:
    """The runtime's LLVM IR for this machine."""
    declaration, instruction = host.pause
    text = _RUNTIME_IR
    for place, value in (
        ("$FUTEX", str(host.futex)),
        ("$YIELD", str(host.sched_yield)),
        ("$DECLARE_PAUSE", declaration),
        ("$PAUSE", instruction),
    ):
        text = text.replace(place, value)
    return text


_RUNTIME_IR = """
%Command = type { ptr, ptr, [3 x i32], i32, i64, i64 }
%Threading = type { i32, i32, ptr, ptr, ptr, ptr, i64 }
%Time = type { i64, i64 }
; threading, entry, args, grid, total, chunk, then the counter on a line of its own
%Job = type { ptr, ptr, ptr, ptr, i64, i64, [16 x i8], i64 }

declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)
$DECLARE_PAUSE

define internal i64 @now_ns() nounwind {
  %time = alloca %Time
  %result = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %nanoseconds_p = getelementptr %Time, ptr %time, i32 0, i32 1
  %nanoseconds = load i64, ptr %nanoseconds_p
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %nanoseconds
  ret i64 %sum
}

; Operations: 128 waits while the word is %value, 129 wakes up to %value waiters (both private).
define internal void @futex(ptr %word, i32 %operation, i32 %value) nounwind {
  %result = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i32 %operation, i32 %value,
                                         ptr null, ptr null, i32 0)
  ret void
}

; Take chunks of programs until none is left.
define internal void @share(ptr %job, i32 %thread) nounwind {
  %threading = load ptr, ptr %job
  %entry_p = getelementptr %Job, ptr %job, i32 0, i32 1
  %entry = load ptr, ptr %entry_p
  %args_p = getelementptr %Job, ptr %job, i32 0, i32 2
  %args = load ptr, ptr %args_p
  %grid_p = getelementptr %Job, ptr %job, i32 0, i32 3
  %grid = load ptr, ptr %grid_p
  %total_p = getelementptr %Job, ptr %job, i32 0, i32 4
  %total = load i64, ptr %total_p
  %chunk_p = getelementptr %Job, ptr %job, i32 0, i32 5
  %chunk = load i64, ptr %chunk_p
  %next_p = getelementptr %Job, ptr %job, i32 0, i32 7
  %base_p = getelementptr %Threading, ptr %threading, i32 0, i32 5
  %base = load ptr, ptr %base_p
  %stride_p = getelementptr %Threading, ptr %threading, i32 0, i32 6
  %stride = load i64, ptr %stride_p
  %thread64 = zext i32 %thread to i64
  %offset = mul i64 %thread64, %stride
  %scratch = getelementptr i8, ptr %base, i64 %offset
  br label %take
take:
  %begin = atomicrmw add ptr %next_p, i64 %chunk monotonic
  %more = icmp slt i64 %begin, %total
  br i1 %more, label %work, label %out
work:
  %limit = add i64 %begin, %chunk
  %short = icmp slt i64 %limit, %total
  %end = select i1 %short, i64 %limit, i64 %total
  call void %entry(ptr %args, ptr %grid, i64 %begin, i64 %end, ptr %scratch)
  br label %take
out:
  ret void
}

define internal void @gomp_body(ptr %job) nounwind {
  %threading = load ptr, ptr %job
  %number_p = getelementptr %Threading, ptr %threading, i32 0, i32 3
  %number = load ptr, ptr %number_p
  %thread = call i32 %number()
  call void @share(ptr %job, i32 %thread)
  ret void
}

; A worker of the own pool; its threads are numbered from 1, the caller of a step is 0.
; It looks at the gate for %spin_ns after its last job, then sleeps on the gate's upper half.
define void @isthmus_worker(ptr %pool, i32 %thread, i64 %spin_ns) nounwind {
  %count_p = getelementptr i8, ptr %pool, i64 4
  %sleepers_p = getelementptr i8, ptr %pool, i64 64
  %job_p = getelementptr i8, ptr %pool, i64 128
  %stop_p = getelementptr i8, ptr %pool, i64 192
  br label %idle
idle:
  %served = phi i64 [ 0, %0 ], [ %opening, %leave ], [ %served, %slept ]
  %start = call i64 @now_ns()
  %deadline = add i64 %start, %spin_ns
  br label %look
look:
  %turn = phi i64 [ 0, %idle ], [ %turn_next, %spin ], [ %turn, %missed ]
  %gate = load atomic i64, ptr %pool acquire, align 64
  %opening = lshr i64 %gate, 32
  %odd = and i64 %opening, 1
  %open = icmp ne i64 %odd, 0
  %new = icmp ne i64 %opening, %served
  %enter = and i1 %open, %new
  br i1 %enter, label %try, label %closed
try:
  %entered = add i64 %gate, 1
  %swap = cmpxchg ptr %pool, i64 %gate, i64 %entered acq_rel monotonic
  %inside = extractvalue { i64, i1 } %swap, 1
  br i1 %inside, label %work, label %missed
missed:
  br label %look
work:
  %job = load ptr, ptr %job_p
  call void @share(ptr %job, i32 %thread)
  br label %leave
leave:
  %left = atomicrmw sub ptr %pool, i64 1 acq_rel
  br label %idle
closed:
  %turn_next = add i64 %turn, 1
  %low = and i64 %turn_next, 63
  %check = icmp eq i64 %low, 0
  br i1 %check, label %clock, label %spin
clock:
  %stop = load atomic i32, ptr %stop_p acquire, align 4
  %stopping = icmp ne i32 %stop, 0
  br i1 %stopping, label %out, label %patience
patience:
  %now = call i64 @now_ns()
  %tired = icmp sge i64 %now, %deadline
  br i1 %tired, label %sleep, label %spin
spin:
  $PAUSE
  br label %look
sleep:
  %seen = trunc i64 %opening to i32
  %s0 = atomicrmw add ptr %sleepers_p, i32 1 seq_cst
  call void @futex(ptr %count_p, i32 128, i32 %seen)
  %s1 = atomicrmw sub ptr %sleepers_p, i32 1 seq_cst
  %stop_asleep = load atomic i32, ptr %stop_p acquire, align 4
  %stopping_asleep = icmp ne i32 %stop_asleep, 0
  br i1 %stopping_asleep, label %out, label %slept
slept:
  br label %idle
out:
  ret void
}

; Add to the gate, then wake workers that sleep. Opening a closed gate adds 1 to its upper half;
; stopping the pool adds 2, so that sleepers look up and the gate stays closed.
define internal void @move_gate(ptr %pool, i64 %step) nounwind {
  %count_p = getelementptr i8, ptr %pool, i64 4
  %sleepers_p = getelementptr i8, ptr %pool, i64 64
  %g = atomicrmw add ptr %pool, i64 %step seq_cst
  %sleepers = load atomic i32, ptr %sleepers_p seq_cst, align 4
  %any = icmp ne i32 %sleepers, 0
  br i1 %any, label %wake, label %out
wake:
  call void @futex(ptr %count_p, i32 129, i32 2147483647)
  br label %out
out:
  ret void
}

define void @isthmus_stop(ptr %pool) nounwind {
  %stop_p = getelementptr i8, ptr %pool, i64 192
  store atomic i32 1, ptr %stop_p seq_cst, align 4
  call void @move_gate(ptr %pool, i64 8589934592)
  ret void
}

define internal void @pool_run(ptr %pool, ptr %job) nounwind {
  %job_p = getelementptr i8, ptr %pool, i64 128
  store ptr %job, ptr %job_p
  call void @move_gate(ptr %pool, i64 4294967296)
  call void @share(ptr %job, i32 0)
  %before = atomicrmw add ptr %pool, i64 4294967296 acq_rel
  %busy = and i64 %before, 4294967295
  %alone = icmp eq i64 %busy, 0
  br i1 %alone, label %out, label %wait
wait:
  %turn = phi i64 [ 0, %0 ], [ %turn_next, %again ]
  %gate = load atomic i64, ptr %pool acquire, align 64
  %inside = and i64 %gate, 4294967295
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %out, label %more
more:
  %turn_next = add i64 %turn, 1
  %tired = icmp uge i64 %turn_next, 2000
  br i1 %tired, label %rest, label %spin
rest:
  %y = call i64 (i64, ...) @syscall(i64 $YIELD)
  br label %again
spin:
  $PAUSE
  br label %again
again:
  br label %wait
out:
  ret void
}

define void @isthmus_step(ptr %commands, i64 %count, ptr %threading, ptr %profile) nounwind {
  %job = alloca %Job, align 64
  %mode = load i32, ptr %threading
  %threads_p = getelementptr %Threading, ptr %threading, i32 0, i32 1
  %threads = load i32, ptr %threads_p
  %gomp_p = getelementptr %Threading, ptr %threading, i32 0, i32 2
  %gomp = load ptr, ptr %gomp_p
  %pool_p = getelementptr %Threading, ptr %threading, i32 0, i32 4
  %pool = load ptr, ptr %pool_p
  %scratch_p = getelementptr %Threading, ptr %threading, i32 0, i32 5
  %scratch = load ptr, ptr %scratch_p
  %profiling = icmp ne ptr %profile, null
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %out
loop:
  %i = phi i64 [ 0, %0 ], [ %i_next, %next ]
  br i1 %profiling, label %clock, label %start
clock:
  %clock_start = call i64 @now_ns()
  br label %start
start:
  %started = phi i64 [ 0, %loop ], [ %clock_start, %clock ]
  %command = getelementptr %Command, ptr %commands, i64 %i
  %entry = load ptr, ptr %command
  %args_p = getelementptr %Command, ptr %command, i32 0, i32 1
  %args = load ptr, ptr %args_p
  %grid = getelementptr %Command, ptr %command, i32 0, i32 2
  %kind_p = getelementptr %Command, ptr %command, i32 0, i32 3
  %kind = load i32, ptr %kind_p
  %total_p = getelementptr %Command, ptr %command, i32 0, i32 4
  %total = load i64, ptr %total_p
  %chunk_p = getelementptr %Command, ptr %command, i32 0, i32 5
  %chunk = load i64, ptr %chunk_p
  switch i32 %kind, label %launch [ i32 1, label %copy
                                    i32 2, label %fill ]
copy:
  %m0 = call ptr @memcpy(ptr %entry, ptr %args, i64 %total)
  br label %end
fill:
  %byte = trunc i64 %chunk to i32
  %m1 = call ptr @memset(ptr %entry, i32 %byte, i64 %total)
  br label %end
launch:
  %one = icmp sle i64 %total, %chunk
  %serial_mode = icmp eq i32 %mode, 0
  %serial = or i1 %one, %serial_mode
  br i1 %serial, label %direct, label %parallel
direct:
  call void %entry(ptr %args, ptr %grid, i64 0, i64 %total, ptr %scratch)
  br label %end
parallel:
  store ptr %threading, ptr %job
  %job1 = getelementptr %Job, ptr %job, i32 0, i32 1
  store ptr %entry, ptr %job1
  %job2 = getelementptr %Job, ptr %job, i32 0, i32 2
  store ptr %args, ptr %job2
  %job3 = getelementptr %Job, ptr %job, i32 0, i32 3
  store ptr %grid, ptr %job3
  %job4 = getelementptr %Job, ptr %job, i32 0, i32 4
  store i64 %total, ptr %job4
  %job5 = getelementptr %Job, ptr %job, i32 0, i32 5
  store i64 %chunk, ptr %job5
  %job7 = getelementptr %Job, ptr %job, i32 0, i32 7
  store atomic i64 0, ptr %job7 release, align 8
  %is_gomp = icmp eq i32 %mode, 1
  br i1 %is_gomp, label %by_gomp, label %by_pool
by_gomp:
  call void %gomp(ptr @gomp_body, ptr %job, i32 %threads, i32 0)
  br label %end
by_pool:
  call void @pool_run(ptr %pool, ptr %job)
  br label %end
end:
  br i1 %profiling, label %record, label %next
record:
  %ended = call i64 @now_ns()
  %spent = sub i64 %ended, %started
  %slot = getelementptr i64, ptr %profile, i64 %i
  %so_far = load i64, ptr %slot
  %sum = add i64 %so_far, %spent
  store i64 %sum, ptr %slot
  br label %next
next:
  %i_next = add i64 %i, 1
  %more_commands = icmp slt i64 %i_next, %count
  br i1 %more_commands, label %loop, label %out
out:
  ret void
}
"""
