#!/usr/bin/env python3
"""Disassembles the objects of the CPU targets and checks what the compiler made of them.

1. The loops of the register-tile products touch the stack with no vector register: an accumulator
   that lives in memory costs a kernel half its speed and nothing else would notice.
2. A target's object defines no weak symbol: the linker keeps one copy of such a function for the
   whole library, perhaps the one compiled for an instruction set this CPU does not have.

usage: hot_loops_test.py OBJDUMP NM OBJECT...
       hot_loops_test.py --self-test
"""

import os
import re
import subprocess
import sys

# AVX-VNNI's instructions are printed with the encoding that tells them from AVX-512's.
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(?:\{vex\}\s+)?(\S+)\s*(.*)$")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
MULTIPLY = re.compile(r"^(vfn?madd|vdpbf16ps|mulps|fmla|fmad|bfdot)")
BROADCAST = re.compile(r"^(v?broadcastss|vpbroadcast[dw]|vbroadcastf|shufps|movss|ld1rw?|dup)")
EXPONENTIAL = re.compile(r"^(vpslld|pslld|vscalefps|shl|lsl)")
MATRIX_MULTIPLY = re.compile(r"^tdp(bf16ps|bssd|bsud)")
WORD_MULTIPLY = re.compile(r"^(vpdpwssd|vpmaddwd|vpdpbusd|sdot|smmla)")
VECTOR = re.compile(r"%[xyzt]mm|\b[vzq]\d+\b")
BY_ELEMENT = re.compile(r"\bv\d+\.s\[\d\]")
JUMP = re.compile(r"^(j|b\.|b$|cbn?z|tbn?z)")
# Three tile widths for each of the two products.
MIN_LOOPS = 6
# One for each of the two products.
MIN_INT8_LOOPS = 2
# Only values, and of one element type.
MIN_GENERIC_DECODE_LOOPS = 3


def functions(disassembly):
    """Yields (name, [(address, mnemonic, operands)])."""
    name, body = None, []
    for line in disassembly.splitlines():
        start = FUNCTION.match(line)
        if start:
            if name:
                yield name, body
            name, body = start.group(1), []
            continue
        found = INSTRUCTION.match(line)
        if found:
            body.append((int(found.group(1), 16), found.group(2), found.group(3)))
    if name:
        yield name, body


def innermost_loops(body):
    """Bodies of loops that contain no other backward jump."""
    index_of = {address: i for i, (address, _, _) in enumerate(body)}
    back_edges = []
    for i, (address, mnemonic, operands) in enumerate(body):
        if not JUMP.match(mnemonic):
            continue
        target = re.match(r"(?:[wx]\d+, )?(?:#\d+, )?([0-9a-f]+)\b", operands)
        if target and int(target.group(1), 16) in index_of:
            first = index_of[int(target.group(1), 16)]
            if first <= i:
                back_edges.append((first, i))
    for first, last in back_edges:
        if not any(f >= first and l < last for f, l in back_edges if (f, l) != (first, last)):
            yield body[first : last + 1]


def is_product(loop):
    mnemonics = [mnemonic for _, mnemonic, _ in loop]
    if sum(bool(MATRIX_MULTIPLY.match(m)) for m in mnemonics) >= 3:
        return True
    if sum(bool(WORD_MULTIPLY.match(m)) for m in mnemonics) >= 4:
        return True
    multiplies = sum(bool(MULTIPLY.match(m)) for m in mnemonics)
    has_broadcast = any(
        BROADCAST.match(m)
        or (m == "mov" and operands.startswith("z"))
        or BY_ELEMENT.search(operands)
        for _, m, operands in loop
    )
    return multiplies >= 6 and has_broadcast and not any(EXPONENTIAL.match(m) for m in mnemonics)


def stack_pattern(body):
    """Matches stack operands; %rbp is a frame pointer only where the function makes it one."""
    has_frame = any(m == "mov" and operands == "%rsp,%rbp" for _, m, operands in body)
    return re.compile(r"\(%rsp[,)]|\(%rbp\)|\[sp\b" if has_frame else r"\(%rsp[,)]|\[sp\b")


def check_disassembly(disassembly):
    """(number of product loops, list of complaints)."""
    num_loops, complaints = 0, []
    for name, body in functions(disassembly):
        # Unpacking widens bytes, and keeps the last block of a row on the stack; rows of o are
        # turned, which the generic target does in memory.
        if "::Unpack" in name or "::Int8OutputRows" in name:
            continue
        on_stack = stack_pattern(body)
        for loop in innermost_loops(body):
            if not is_product(loop):
                continue
            num_loops += 1
            for address, mnemonic, operands in loop:
                if VECTOR.search(operands) and on_stack.search(operands):
                    complaints.append(f"{name}: {address:x}: {mnemonic} {operands}")
    return num_loops, complaints


def least_loops(name):
    if name.startswith("int8_generic"):  # its byte products are no instruction of their own
        return 0
    if name.startswith("int8_"):
        return MIN_INT8_LOOPS
    return MIN_GENERIC_DECODE_LOOPS if name.startswith("decode_generic") else MIN_LOOPS


def check_object(objdump, nm, path):
    command = [objdump, "-d", "-C", "--no-show-raw-insn", path]
    num_loops, complaints = check_disassembly(subprocess.check_output(command, text=True))
    least = least_loops(os.path.basename(path))
    if num_loops < least:
        complaints.append(f"{num_loops} product loops found, at least {least} expected")
    # The generic target is compiled like the rest of the library: sharing functions does no harm.
    if "generic" not in os.path.basename(path):
        symbols = subprocess.check_output([nm, "-C", "--defined-only", path], text=True)
        weak = [line for line in symbols.splitlines() if re.match(r"^[0-9a-f]+ [WVuw] ", line)]
        complaints += [f"weak symbol: {line}" for line in weak]
    print(f"{os.path.basename(path)}: {num_loops} product loops, {len(complaints)} complaints")
    for complaint in complaints:
        print(f"  {complaint}")
    return not complaints


def self_test():
    multiply = "  {0:x}:\tvfmadd231ps %ymm1,%ymm2,%ymm3\n"
    clean = "0000 <f>:\n  10:\tvbroadcastss (%rax),%ymm2\n"
    clean += "".join(multiply.format(0x11 + i) for i in range(8)) + "  30:\tjne    10 <f+0x10>\n"
    spilled = clean.replace("  30:", "  29:\tvmovaps %ymm3,0x40(%rsp)\n  30:")
    assert check_disassembly(clean) == (1, []), check_disassembly(clean)
    assert len(check_disassembly(spilled)[1]) == 1
    straight = clean.replace("jne    10", "jne    99")
    assert check_disassembly(straight) == (0, [])
    arm = "0000 <f>:\n  10:\tld1rw\t{z2.s}, p0/z, [x0]\n"
    arm += "".join(f"  {0x14 + 4 * i:x}:\tsdot\tz3.s, z1.b, z2.b\n" for i in range(8))
    arm += "  34:\tb.ne\t10 <f+0x10>  // b.any\n"
    vnni = clean.replace("vfmadd231ps", "{vex} vpdpbusd")
    assert check_disassembly(vnni) == (1, []), check_disassembly(vnni)
    assert check_disassembly(arm) == (1, []), check_disassembly(arm)
    assert len(check_disassembly(arm.replace("  34:", "  32:\tldr\tz3, [sp, #1]\n  34:"))[1]) == 1


def main(arguments):
    self_test()
    if arguments == ["--self-test"]:
        return 0
    objdump, nm, *paths = arguments
    targets = [path for path in paths if f"{os.sep}targets{os.sep}" in path]
    if not targets:
        print("no objects of CPU targets given")
        return 1
    return 0 if all([check_object(objdump, nm, path) for path in targets]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
