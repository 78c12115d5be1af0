package js_test

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestWritesOfFailedDeltas shows that the writes of a delta count only if it is done, also when
// another delta of its batch is not.
func TestWritesOfFailedDeltas(t *testing.T) {
	// Guarantee: call-atomic
	const kept, dropped = "1 2 3", "1 none 2" // of the first delta, of the second one, and of all
	for end, want := range map[string]string{
		"return []":                             kept,
		"return ctx.drop":                       kept,
		`throw new Error("no")`:                 dropped,
		`throw ctx.retry("later", 1)`:           dropped,
		`return Promise.reject(new Error("a"))`: dropped,
		`return [{data: 1}, {}]`:                dropped,
		`return [{type: "\u0000", data: 1}]`:    dropped,
	} {
		h := newHost()
		body := "const n = (ctx.kv.get('n') ?? 0) + 1\nctx.kv.set('n', n)\nctx.kv.set('seen' + delta.object.metadata.resourceVersion, n)\nif (delta.object.metadata.resourceVersion === '3') { " + end + " }\nreturn []"
		_, err := h.open(t, source(body, "allow: {kv: true}")).Handle(t.Context(), pods(t, 3))
		must.Succeed(t, err)
		var got []string
		for _, key := range []string{"seen2", "seen3", "n"} {
			value, ok := h.env.KV.Get(key)
			if !ok {
				value = []byte("none")
			}
			got = append(got, string(value))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", end, got, want)
		}
	}
}
