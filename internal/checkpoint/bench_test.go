package checkpoint_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

const benchObjects = 100_000

// pod makes an object of about 3.5 KB that compresses like one.
func pod(b *testing.B, r *event.Resource, i, version int) *event.Object {
	b.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%d","namespace":"ns-%d","uid":"0b8e2d54-3f6a-4c1d-9e7b-%012d","resourceVersion":"%d","labels":{`, i, i%50, i, version)
	for j := range 10 {
		fmt.Fprintf(&text, `"app.kubernetes.io/label-%d":%q,`, j, randomText(12, uint64(i*10+j)))
	}
	text.WriteString(`"app":"web"}},"spec":{"containers":[`)
	for j := range 4 {
		fmt.Fprintf(&text, `{"name":"c%d","image":"registry.example.com/team/%s:%d","resources":{"limits":{"cpu":"500m","memory":"128Mi"},"requests":{"cpu":"100m","memory":"64Mi"}},`+
			`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","volumeMounts":[{"name":"kube-api-access-%s","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]},`,
			j, randomText(8, uint64(i)), j, randomText(5, uint64(i)))
	}
	text.WriteString(`{}]},"status":{"conditions":[`)
	for j := range 5 {
		fmt.Fprintf(&text, `{"type":"Condition%d","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-20T09:%02d:%02dZ"},`, j, i%60, version%60)
	}
	fmt.Fprintf(&text, `{}],"hostIP":"10.0.%d.%d","note":%q}}`, i%256, version%256, randomText(400, uint64(i)))
	o, err := event.ParseObject(r, text.String())
	must.Succeed(b, err)
	return o
}

// fill returns a state file of 100,000 objects.
func fill(b *testing.B) (*checkpoint.DB, string, *event.Resource) {
	b.Helper()
	path := statePath(b)
	db := open(b, path)
	r := resource("", "pods")
	for from := 0; from < benchObjects; from += 10_000 {
		cut := checkpoint.WatchCut{ID: "w", Applied: "1"}
		for i := from; i < from+10_000; i++ {
			cut.Put = append(cut.Put, pod(b, r, i, 1))
		}
		write(b, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{cut}})
	}
	return db, path, r
}

// BenchmarkCut is one cut of 5,000 changed objects of 3.5 KB among 100,000.
func BenchmarkCut(b *testing.B) {
	db, path, r := fill(b)
	var bytes int64
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		cut := checkpoint.WatchCut{ID: "w", Applied: "2"}
		for _, i := range rand.Perm(benchObjects)[:5000] {
			o := pod(b, r, i, n+2)
			bytes += int64(len(o.JSON()))
			cut.Put = append(cut.Put, o)
		}
		b.StartTimer()
		write(b, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{cut}})
	}
	b.ReportMetric(float64(bytes)/float64(b.N)/5000, "B/object")
	b.ReportMetric(5000*float64(b.N)/b.Elapsed().Seconds(), "objects/s")
	b.ReportMetric(float64(db.Size())/1e6, "MB/file")
	reopenBench(b, db, path)
}

func reopenBench(b *testing.B, db *checkpoint.DB, path string) {
	b.Helper()
	must.Succeed(b, db.Close())
	if again := open(b, path); again.Quarantined() != "" {
		b.Fatal("an intact file was moved away")
	}
}

// BenchmarkOpen opens a file of 100,000 objects, which checks all of it.
func BenchmarkOpen(b *testing.B) {
	db, path, _ := fill(b)
	db.Close()
	for b.Loop() {
		open(b, path).Close()
	}
	info, err := os.Stat(path)
	must.Succeed(b, err)
	b.ReportMetric(float64(info.Size())/1e6, "MB/file")
}

// BenchmarkLoad loads a watch of 100,000 objects.
func BenchmarkLoad(b *testing.B) {
	db, _, _ := fill(b)
	for b.Loop() {
		if w, err := db.LoadWatch("w"); err != nil || len(w.Objects) != benchObjects {
			b.Fatal(err)
		}
	}
	b.ReportMetric(benchObjects*float64(b.N)/b.Elapsed().Seconds(), "objects/s")
}

// BenchmarkIntents writes ten intents of 3.5 KB, with 100,000 objects in the file.
func BenchmarkIntents(b *testing.B) {
	db, _, r := fill(b)
	n := benchObjects
	for b.Loop() {
		var objects []*event.Object
		for range 10 {
			n++
			objects = append(objects, pod(b, r, n, 1))
		}
		must.Succeed(b, db.WriteIntents(map[string][]*event.Object{"w": objects}))
	}
}

// BenchmarkFirstCut is the first cut of a watch, with its objects in no order. ratio compares the
// CPU per object of 30,000 with that of 3,000: the cost grows in proportion if it is about 1.
func BenchmarkFirstCut(b *testing.B) {
	r := resource("", "pods")
	took := func(n int) float64 {
		cut := checkpoint.WatchCut{ID: "w", Applied: "1"}
		for _, i := range rand.Perm(n) {
			cut.Put = append(cut.Put, pod(b, r, i, 1))
		}
		db := open(b, statePath(b))
		defer db.Close()
		before := cpu(b)
		write(b, db, checkpoint.Cut{Watches: []checkpoint.WatchCut{cut}})
		return float64((cpu(b) - before).Microseconds()) / float64(n)
	}
	var few, many float64
	for b.Loop() {
		few += took(3_000)
		many += took(30_000)
	}
	b.ReportMetric(many/float64(b.N), "cpu-µs/object")
	b.ReportMetric(many/few, "ratio")
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
