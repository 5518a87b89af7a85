"""Small internal functions that a module gets when it needs them: no library is linked."""

from __future__ import annotations

from isthmus.ir.types import SCALARS
from isthmus.targets.llvm import numbers
from isthmus.targets.llvm.text import llvm_type

__all__ = ["atomic_add_function", "fma_function", "fmod_function"]


class _Lines:
    """A `Writer` that collects lines."""

    def __init__(self, native: tuple[str, ...]) -> None:
        self.native = native
        self.lines: list[str] = []

    def let(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name


def atomic_add_function(name: str, scalar: str, native: tuple[str, ...]) -> str:
    """Add to a narrow float in memory by compare and swap; gives the old value."""
    type_ = llvm_type(SCALARS[scalar])
    write = _Lines(native)
    old = numbers.widen(write, scalar, "%old", 0)
    addend = numbers.widen(write, scalar, "%addend", 0)
    total = write.let(f"fadd float {old}, {addend}")
    new = numbers.narrow(write, scalar, total, 0)
    body = "\n".join(write.lines)
    return f"""define internal {type_} @{name}(ptr %pointer, {type_} %addend) #0 {{
entry:
  %first = load atomic {type_}, ptr %pointer monotonic, align {SCALARS[scalar].size_bytes}
  br label %again
again:
  %old = phi {type_} [ %first, %entry ], [ %seen, %again ]
{body}
  %pair = cmpxchg ptr %pointer, {type_} %old, {type_} {new} acq_rel acquire
  %seen = extractvalue {{ {type_}, i1 }} %pair, 0
  %done = extractvalue {{ {type_}, i1 }} %pair, 1
  br i1 %done, label %end, label %again
end:
  ret {type_} %old
}}
"""


def fmod_function(name: str) -> str:
    """C fmod on f64 by long division of the significands, exact; the sign of the dividend."""
    return f"""define internal double @{name}(double %x, double %y) #0 {{
entry:
  %xbits = bitcast double %x to i64
  %ybits = bitcast double %y to i64
  %a = and i64 %xbits, 9223372036854775807
  %b = and i64 %ybits, 9223372036854775807
  %sign = and i64 %xbits, -9223372036854775808
  %xbad = icmp uge i64 %a, 9218868437227405312
  %ynan = icmp ugt i64 %b, 9218868437227405312
  %yzero = icmp eq i64 %b, 0
  %bad0 = or i1 %xbad, %ynan
  %bad = or i1 %bad0, %yzero
  br i1 %bad, label %invalid, label %valid
invalid:
  %none = fmul double %x, %y
  %nan = fdiv double %none, %none
  ret double %nan
valid:
  %less = icmp ult i64 %a, %b
  br i1 %less, label %small, label %divide
small:
  ret double %x
divide:
  %aexp0 = lshr i64 %a, 52
  %bexp0 = lshr i64 %b, 52
  %aexp = call i64 @llvm.umax.i64(i64 %aexp0, i64 1)
  %bexp = call i64 @llvm.umax.i64(i64 %bexp0, i64 1)
  %afrac = and i64 %a, 4503599627370495
  %bfrac = and i64 %b, 4503599627370495
  %anormal = icmp ne i64 %aexp0, 0
  %bnormal = icmp ne i64 %bexp0, 0
  %ahidden = select i1 %anormal, i64 4503599627370496, i64 0
  %bhidden = select i1 %bnormal, i64 4503599627370496, i64 0
  %am = or i64 %afrac, %ahidden
  %bm = or i64 %bfrac, %bhidden
  %first = urem i64 %am, %bm
  %shift = sub i64 %aexp, %bexp
  %some = icmp ne i64 %shift, 0
  br i1 %some, label %step, label %pack
step:
  %rest = phi i64 [ %first, %divide ], [ %reduced, %step ]
  %left = phi i64 [ %shift, %divide ], [ %after, %step ]
  %now = call i64 @llvm.umin.i64(i64 %left, i64 11)
  %scaled = shl i64 %rest, %now
  %reduced = urem i64 %scaled, %bm
  %after = sub i64 %left, %now
  %more = icmp ne i64 %after, 0
  br i1 %more, label %step, label %pack
pack:
  %r = phi i64 [ %first, %divide ], [ %reduced, %step ]
  %whole = uitofp i64 %r to double
  %power = sub i64 %bexp, 1075
  %half = ashr i64 %power, 1
  %other = sub i64 %power, %half
  %half.biased = add i64 %half, 1023
  %half.bits = shl i64 %half.biased, 52
  %half.scale = bitcast i64 %half.bits to double
  %other.biased = add i64 %other, 1023
  %other.bits = shl i64 %other.biased, 52
  %other.scale = bitcast i64 %other.bits to double
  %part = fmul double %whole, %half.scale
  %magnitude = fmul double %part, %other.scale
  %mbits = bitcast double %magnitude to i64
  %rbits = or i64 %mbits, %sign
  %result = bitcast i64 %rbits to double
  ret double %result
}}
"""


def fma_function(name: str) -> str:
    """f64 a * b + c rounded once where there is no such instruction.

    Error-free product and sums, then an addition made odd (Boldo and Melquiond 2008); not exact
    where the product over- or underflows.
    """
    write = _Lines(())
    let = write.let

    def op(word: str, a: str, b: str) -> str:
        return let(f"{word} double {a}, {b}")

    def two_sum(a: str, b: str) -> tuple[str, str]:
        total = op("fadd", a, b)
        part = op("fsub", total, a)
        rest = op("fsub", a, op("fsub", total, part))
        return total, op("fadd", rest, op("fsub", b, part))

    def halves(a: str) -> tuple[str, str]:
        scaled = op("fmul", a, "134217729.0")
        high = op("fsub", scaled, op("fsub", scaled, a))
        return high, op("fsub", a, high)

    plain = op("fadd", op("fmul", "%a", "%b"), "%c")
    product = op("fmul", "%a", "%b")
    (ah, al), (bh, bl) = halves("%a"), halves("%b")
    error = op("fsub", op("fmul", ah, bh), product)
    error = op("fadd", error, op("fmul", ah, bl))
    error = op("fadd", error, op("fmul", al, bh))
    error = op("fadd", error, op("fmul", al, bl))
    th, tl = two_sum("%c", error)
    vh, vl = two_sum(product, th)
    z, rest = two_sum(tl, vl)
    bits = let(f"bitcast double {z} to i64")
    rest_bits = let(f"bitcast double {rest} to i64")
    inexact = let(f"fcmp one double {rest}, 0.0")
    low = let(f"and i64 {bits}, 1")
    even = let(f"icmp eq i64 {low}, 0")
    signs = let(f"xor i64 {bits}, {rest_bits}")
    opposite = let(f"icmp slt i64 {signs}, 0")
    step = let(f"select i1 {opposite}, i64 -1, i64 1")
    moved = let(f"add i64 {bits}, {step}")
    fix = let(f"and i1 {inexact}, {even}")
    odd = let(f"select i1 {fix}, i64 {moved}, i64 {bits}")
    result = op("fadd", vh, let(f"bitcast i64 {odd} to double"))
    usable = let(f"fcmp ord double {result}, {plain}")
    chosen = let(f"select i1 {usable}, double {result}, double {plain}")
    body = "\n".join(write.lines)
    return (
        f"define internal double @{name}(double %a, double %b, double %c) #0 {{\nentry:\n"
        f"{body}\n  ret double {chosen}\n}}\n"
    )
