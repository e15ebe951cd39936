# Functions of hand-written assembly: without sizes, without types, some without unwind entries.
.text
.globl sized
.type sized,@function
sized:
    .cfi_startproc
    nop
    ret
    .cfi_endproc
.size sized,.-sized

# Local, so that nothing names it once the file is stripped.
.p2align 4
.type first,@function
first:
.Lfirst:
    nop
    dec %rdi
first.again:
    jnz first.again
    ret

.p2align 4
.type second,@function
second:
    nop
    ret

# As assemblers without directives for it write them.
.p2align 4
.globl untyped
untyped:
    nop
    ret
untyped_too:
    nop
    ret

.p2align 4
.type covered,@function
covered:
    .cfi_startproc
    nop
    nop
    ret
    .cfi_endproc
    # No function's: behind the unwind entry.
    ud2
    ud2

# A label within a function that says where it ends, and a name of the same place without a size.
.p2align 4
.type outer,@function
.type outer_alias,@function
outer_alias:
outer:
    nop
inner:
    nop
    ret
.size outer,.-outer
    ud2
    ud2

.p2align 4
.type last,@function
.type last_local,@function
.globl last
last_local:
last:
    nop
    ret
    .section .note.GNU-stack,"",@progbits
