package work_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

func BenchmarkCodec(b *testing.B) {
	c := work.NewCodec()
	m := &work.Message{Route: "r", Hash: "h", Key: "k", Delta: full(b)}
	body := c.Encode(m)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Encode(m)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Decode(body); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSigned reports the time of signing a delta, divided by that of encoding it, and that of
// verifying it, divided by that of decoding it.
func BenchmarkSigned(b *testing.B) {
	file := filepath.Join(b.TempDir(), "key")
	must.Succeed(b, os.WriteFile(file, []byte(strings.Repeat("k", 32)), 0o600))
	n, problems := config.ParseNode("test.yaml", []byte("{workers: {file: "+file+"}}"))
	var f config.Fleet
	if problems = append(problems, n.Decode(&f.Keys)...); len(problems) > 0 {
		b.Fatal(problems)
	}
	keys, err := fleet.NewKeys(f.Keys.Workers, config.Secret{}, false)
	must.Succeed(b, err)
	c := work.NewCodec()
	m := &work.Message{Route: "r", Hash: "h", Key: "k", Delta: full(b)}
	var encode, sign, verify, decode time.Duration
	for b.Loop() {
		began := time.Now()
		body := c.Encode(m)
		encoded := time.Now()
		mac := keys.Sign(fleet.PurposeDelta, "dr.f.w.r.1", "", body)
		signed := time.Now()
		must.Succeed(b, keys.Verify(mac, fleet.PurposeDelta, "dr.f.w.r.1", "", body))
		verified := time.Now()
		_, err := c.Decode(body)
		must.Succeed(b, err)
		encode, sign, verify, decode = encode+encoded.Sub(began), sign+signed.Sub(encoded), verify+verified.Sub(signed), decode+time.Since(verified)
	}
	b.ReportMetric(sign.Seconds()/encode.Seconds(), "sign/encode")
	b.ReportMetric(verify.Seconds()/decode.Seconds(), "verify/decode")
}
