# A function whose debug info nests 200 inlined calls that hold its code, and a million that hold none, in each other.
.text
.globl deep
.type deep,@function
deep:
    .file 1 "deep.c"
    .loc 1 7
    nop
    ret
.Lend:
.size deep, .-deep

.section .debug_abbrev,"",@progbits
    # 1: compile unit: low_pc addr, high_pc data8, stmt_list sec_offset
    .uleb128 1, 0x11
    .byte 1
    .uleb128 0x11, 1, 0x12, 7, 0x10, 0x17
    .byte 0, 0
    # 2: subprogram: low_pc, high_pc, name string
    .uleb128 2, 0x2e
    .byte 1
    .uleb128 0x11, 1, 0x12, 7, 3, 8
    .byte 0, 0
    # 3: inlined subroutine without attributes
    .uleb128 3, 0x1d
    .byte 1, 0, 0
    # 4: inlined subroutine: low_pc, high_pc
    .uleb128 4, 0x1d
    .byte 1
    .uleb128 0x11, 1, 0x12, 7
    .byte 0, 0
    .byte 0

.section .debug_info,"",@progbits
    .long .Linfo_end - .Linfo
.Linfo:
    .short 4
    .long .debug_abbrev
    .byte 8
    .uleb128 1
    .quad deep, .Lend - deep
    .long .debug_line
    .uleb128 2
    .quad deep, .Lend - deep
    .asciz "deep"
    .rept 200
    .uleb128 4
    .quad deep, .Lend - deep
    .endr
    .fill 1000000, 1, 3
    .fill 1000202, 1, 0
.Linfo_end:

.section .debug_line,"",@progbits
.section .note.GNU-stack,"",@progbits
