package meter_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/meter"
)

const header = "\x00asm\x01\x00\x00\x00"

// raw is a module of one function () → () with the given bytes as its body, including the last end.
func raw(body ...any) []byte {
	return slices.Concat([]byte(header), sec(1, []byte{1, 0x60, 0, 0}), sec(3, []byte{1, 0}), sec(5, []byte{1, 0, 1}),
		sec(10, append([]byte{1}, sized(append([]byte{0}, code(body...)...))...)))
}

func with(sections ...[]byte) []byte {
	return slices.Concat([]byte(header), slices.Concat(sections...))
}

// TestFeatures shows that a refusal names the proposal that is not enabled.
func TestFeatures(t *testing.T) {
	tests := []struct {
		feature string
		module  []byte
	}{
		{"threads", raw(num(0), num(0), 0xfe, 0x00, 2, 0, drop, end)},
		{"threads", with(sec(5, []byte{1, 3, 1, 1}))},
		{"tail-call", raw(0x12, 0, end)},
		{"tail-call", raw(num(0), 0x13, 0, 0, end)},
		{"exception-handling", raw(0x1f, void, 0, end, end)},
		{"exception-handling", raw(0x06, void, end, end)},
		{"exception-handling", with(sec(13, []byte{0}))},
		{"gc", raw(0xfb, 0, 0, drop, end)},
		{"gc", with(sec(1, []byte{1, 0x5f, 0}))},
		{"gc", with(sec(1, []byte{1, 0x60, 1, 0x6e, 0}))},
		{"function-references", with(sec(1, []byte{1, 0x60, 1, 0x64, 0, 0}))},
		{"function-references", raw(0xd4, end)},
		{"memory64", with(sec(5, []byte{1, 4, 1}))},
		{"multi-memory", with(sec(5, []byte{2, 0, 1, 0, 1}))},
		{"multi-memory", raw(num(0), 0x28, 0x42, 1, 0, drop, end)},
		{"multi-memory", raw(0x3f, 1, drop, end)},
		{"extended-const", with(sec(6, append([]byte{1, i32, 0}, code(num(1), num(2), add, end)...)))},
		{"relaxed-simd", raw(0xfd, 0x80, 2, end)},
		{"stack-switching", raw(0xe0, 0, end)},
		{"wide-arithmetic", raw(0xfc, 19, end)},
		{"custom-page-sizes", with(sec(5, []byte{1, 8, 1, 0}))},
		{"component-model", []byte("\x00asm\x0d\x00\x01\x00")},
	}
	for _, tt := range tests {
		_, err := meter.Rewrite(tt.module, meter.Config{})
		var feature *meter.FeatureError
		if !errors.As(err, &feature) || feature.Feature != tt.feature {
			t.Errorf("%s: %v", tt.feature, err)
		} else if !strings.Contains(err.Error(), tt.feature) {
			t.Errorf("%q does not name %s", err, tt.feature)
		}
	}
}

// TestMalformed shows that a module is refused if it could refer to added parts, can be read in two
// ways, or exceeds a limit.
func TestMalformed(t *testing.T) {
	one := sec(1, []byte{1, 0x60, 0, 0})
	f := sec(3, []byte{1, 0})
	empty := sec(10, []byte{1, 2, 0, end})
	long := func(n int) []byte { return slices.Repeat([]byte{nop}, n) }
	tests := []struct {
		name   string
		module []byte
		want   string
	}{
		{"nothing", nil, "does not start"},
		{"header", []byte("\x00asm\x02\x00\x00\x00"), "version"},
		{"get the fuel", raw(globalGet, 0, drop, end), "global 0 does not exist"},
		{"set the fuel", raw(num64(9), globalSet, 0, end), "global 0 does not exist"},
		{"set the stack", raw(num(0), globalSet, 1, end), "global 1 does not exist"},
		{"export the fuel", with(sec(7, []byte{1, 1, 'x', 3, 0})), "global 0 does not exist"},
		{"fuel in a constant", with(sec(6, []byte{1, i64, 0, globalGet, 0, end})), "global 0 does not exist"},
		{"fuel in a later constant", with(sec(6, []byte{2, i64, 0, globalGet, 1, end, i64, 0, globalGet, 1, end})), "global 1 does not exist"},
		{"fuel in an element", with(sec(4, []byte{1, 0x70, 0, 1}), sec(9, []byte{1, 0, globalGet, 0, end, 0})), "global 0 does not exist"},
		{"fuel in data", with(sec(5, []byte{1, 0, 1}), sec(11, []byte{1, 0, globalGet, 0, end, 0})), "global 0 does not exist"},
		{"get the local of the stack", raw(call, 0, get, 0, drop, end), "local 0 does not exist"},
		{"set it", raw(call, 0, num(0), set, 0, end), "local 0 does not exist"},
		{"set the fuel's local", raw(num64(9), set, 0, loop, void, br, 0, end, end), "local 0 does not exist"},
		{"set the size's local", raw(num(0), set, 0, num(0), 0x40, 0, drop, end), "local 0 does not exist"},
		{"branch to what is put around", raw(br, 1, end), "label 1 does not exist"},
		{"branch further", raw(loop, void, br, 2, end, end), "label 2 does not exist"},
		{"block of an added type", raw(block, 1, end, end), "type 1 does not exist"},
		{"block of a negative type", raw(block, 0xc0, 0x7f, end, end), "type -64 does not exist"},
		{"global of a long number", raw(globalGet, 0x80, 0x80, 0x80, 0x80, 0x10, drop, end), "longer than 32 bits"},
		{"memory index of two bytes", raw(0x3f, 0x80, 0, drop, end), "multi-memory"},
		{"code after the end", raw(end, end), "too many in a function"},
		{"no end", raw(nop), "unexpected end"},
		{"else without if", raw(block, void, elseThen, end, end), "else without if"},
		{"two elses", raw(num(1), ifThen, void, elseThen, elseThen, end, end), "else without if"},
		{"unknown instruction", raw(0x27, end), "unknown instruction 0x27"},
		{"unknown vector instruction", raw(0xfd, 0x9a, 1, end), "unknown instruction 0xfd 154"},
		{"vector instruction of a long number", raw(0xfd, 0x8c, 0, nop, drop, end), "not in its shortest form"},
		{"function that does not exist", raw(call, 1, end), "function 1 does not exist"},
		{"table that does not exist", raw(num(0), callInd, 0, 0, end), "table 0 does not exist"},
		{"data without a count", raw(0xfc, 9, 0, end), "without a data count"},
		{"element that does not exist", raw(0xfc, 13, 0, end), "element segment 0 does not exist"},
		{"truncated constant", raw(0x44, 0, 0), "unexpected end"},
		{"table of branches beyond the body", raw(brTable, 0xff, 0xff, 0xff, 0xff, 0x0f, end), "do not fit"},
		{"section twice", with(one, one), "twice or in the wrong order"},
		{"sections in the wrong order", with(f, one), "does not exist"},
		{"start before export", with(one, f, sec(8, []byte{0}), sec(7, []byte{0}), empty), "wrong order"},
		{"data count after code", with(one, f, empty, sec(12, []byte{0})), "wrong order"},
		{"unknown section", with(sec(14, nil)), "unknown section 14"},
		{"section beyond the module", append(with(), 1, 9, 0), "unexpected end"},
		{"section with more", with(sec(1, []byte{0, 0})), "too many in a section"},
		{"functions without code", with(one, f), "without code"},
		{"code without functions", with(one, empty), "0 functions, and 1 with code"},
		{"data count without data", with(sec(12, []byte{1})), "without data"},
		{"name twice", with(sec(0, []byte("\x04name")), sec(0, []byte("\x04name"))), "twice"},
		{"name that is not text", with(sec(0, []byte{1, 0xff})), "UTF-8"},
		{"export twice", with(one, f, sec(7, []byte{2, 1, 'a', 0, 0, 1, 'a', 0, 0}), empty), `"a" twice`},
		{"many functions", with(one, sec(3, append([]byte{200, 1}, make([]byte, 200)...))), "more than the limit"},
		{"long function", raw(long(5001), end), "more than the limit of 5000"},
		{"many values", raw(long(2000), end), "more than 1000 values"},
		{"many locals", with(one, f, sec(10, append([]byte{1}, sized([]byte{1, 0xff, 0xff, 0xff, 0xff, 0x0f, i32, end})...))), "more than 500 locals"},
		{"locals beyond all numbers", with(one, f, sec(10, append([]byte{1}, sized(slices.Concat([]byte{2, 1, i32}, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, i32}, []byte{end}))...))), "more than 500 locals"},
		{"blocks with many results", with(sec(1, slices.Concat([]byte{2, 0x60, 0, 0, 0x60, 0, 100}, slices.Repeat([]byte{i32}, 100))), f,
			sec(10, append([]byte{1}, sized(slices.Concat([]byte{0}, slices.Repeat([]byte{block, 1, unreachable, end, unreachable}, 12), []byte{end}))...))), "more than 1000 values"},
		{"many blocks", raw(slices.Repeat([]byte{block, 0x40, end}, 60), end), "61 blocks and branches, more than the limit of 50"},
		{"large tables", with(sec(4, []byte{2, 0x70, 0, 60, 0x70, 0, 60})), "more than the limit of 100"},
		{"many tables", with(sec(4, slices.Concat([]byte{9}, slices.Repeat([]byte{0x70, 0, 0}, 9)))), "more than the limit of 8"},
	}
	cfg := meter.Config{MaxFunctions: 100, MaxBody: 5000, MaxLocals: 500, MaxValues: 1000, MaxBlocks: 50, MaxTables: 8, MaxTable: 100}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := meter.Rewrite(tt.module, cfg)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// TestTruncated cuts a module at each byte. Only two prefixes that end before the functions are
// modules.
func TestTruncated(t *testing.T) {
	whole, passed := generate(3, false), 0
	for n := range whole {
		if _, err := meter.Rewrite(whole[:n], meter.Config{}); err == nil {
			passed++
		}
	}
	if passed != 2 {
		t.Errorf("%d truncated modules pass, want the header alone and the types alone", passed)
	}
}
