#include "textflag.h"

// MASK makes the mask of 64 bytes: it compares 16 at a time with the wanted one.
#define MASK(bytes0, bytes1, bytes2, bytes3, wanted, result) \
	MOVO     wanted, X9      \
	PCMPEQB  bytes0, X9      \
	PMOVMSKB X9, result      \
	MOVO     wanted, X10     \
	PCMPEQB  bytes1, X10     \
	PMOVMSKB X10, AX         \
	SHLQ     $16, AX         \
	ORQ      AX, result      \
	MOVO     wanted, X11     \
	PCMPEQB  bytes2, X11     \
	PMOVMSKB X11, BX         \
	SHLQ     $32, BX         \
	ORQ      BX, result      \
	MOVO     wanted, X12     \
	PCMPEQB  bytes3, X12     \
	PMOVMSKB X12, CX         \
	SHLQ     $48, CX         \
	ORQ      CX, result

// BROADCAST fills a register with a constant of 8 bytes.
#define BROADCAST(constant, register) \
	MOVQ       $constant, AX       \
	MOVQ       AX, register        \
	PUNPCKLQDQ register, register

// func masksOf(p *byte) (quotes, slashes, opening, closing uint64)
// SSE2 is part of every amd64 processor.
TEXT ·masksOf(SB), NOSPLIT, $0-40
	MOVQ  p+0(FP), SI
	MOVOU 0(SI), X0
	MOVOU 16(SI), X1
	MOVOU 32(SI), X2
	MOVOU 48(SI), X3

	BROADCAST(0x2222222222222222, X4) // a quote
	MASK(X0, X1, X2, X3, X4, R8)
	MOVQ R8, quotes+8(FP)

	BROADCAST(0x5c5c5c5c5c5c5c5c, X4) // a backslash
	MASK(X0, X1, X2, X3, X4, R8)
	MOVQ R8, slashes+16(FP)

	BROADCAST(0x2020202020202020, X5) // [ becomes {, and ] becomes }
	POR X5, X0
	POR X5, X1
	POR X5, X2
	POR X5, X3

	BROADCAST(0x7b7b7b7b7b7b7b7b, X4) // an opening brace
	MASK(X0, X1, X2, X3, X4, R8)
	MOVQ R8, opening+24(FP)

	BROADCAST(0x7d7d7d7d7d7d7d7d, X4) // a closing brace
	MASK(X0, X1, X2, X3, X4, R8)
	MOVQ R8, closing+32(FP)
	RET

// SPECIAL makes the marks of 16 bytes, see specialsOf.
#define SPECIAL(offset, result) \
	MOVOU    offset(SI), X0 \
	POR      X0, X7         \
	MOVO     X0, X1         \
	PCMPEQB  X4, X1         \
	MOVO     X0, X2         \
	PCMPEQB  X5, X2         \
	MOVO     X0, X3         \
	PMINUB   X6, X3         \
	PCMPEQB  X0, X3         \
	POR      X2, X1         \
	POR      X3, X1         \
	PMOVMSKB X1, result

// func specialsOf(p *byte, marks *[8]uint64) (wide bool)
TEXT ·specialsOf(SB), NOSPLIT, $0-17
	MOVQ p+0(FP), SI
	MOVQ marks+8(FP), DI
	LEAQ 64(DI), DX
	BROADCAST(0x2222222222222222, X4) // a quote
	BROADCAST(0x5c5c5c5c5c5c5c5c, X5) // a backslash
	BROADCAST(0x1f1f1f1f1f1f1f1f, X6) // the last control character
	PXOR X7, X7

next:
	SPECIAL(0, AX)
	SPECIAL(16, BX)
	SHLQ $16, BX
	ORQ  BX, AX
	SPECIAL(32, BX)
	SHLQ $32, BX
	ORQ  BX, AX
	SPECIAL(48, BX)
	SHLQ $48, BX
	ORQ  BX, AX
	MOVQ AX, (DI)
	ADDQ $64, SI
	ADDQ $8, DI
	CMPQ DI, DX
	JNE  next

	PMOVMSKB X7, AX
	TESTL    AX, AX
	SETNE    wide+16(FP)
	RET
