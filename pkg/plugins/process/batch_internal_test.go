package process

import (
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	pluginv1 "github.com/deltarouter/deltarouter/proto/plugin/v1"
)

// TestDeltaSize: no delta takes more on the wire than is counted for it, else a batch could be longer than the plugin takes.
func TestDeltaSize(t *testing.T) {
	last := time.Unix(0, math.MaxInt64)
	long := strings.Repeat("x", 300)
	resource := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Group: long, Version: long, Resource: long}, Cluster: long, Kind: long}
	large, err := event.ParseObject(resource, `{"metadata":{"name":"`+long+`","namespace":"`+long+`","uid":"`+long+`","resourceVersion":"`+long+`"},"x":"`+strings.Repeat("x", 3<<20)+`"}`)
	if err != nil {
		t.Fatal(err)
	}
	all := append(plugintest.Deltas(t), &event.Delta{
		Source: long, Op: event.Left, New: large, Old: large, Initial: true, Stale: true, Redelivered: true, Late: true, Repeat: 1,
		Suppressed: math.MaxInt32, Since: last, Seen: last,
		Event: &event.Event{ID: long, Type: long, Source: long, Subject: long, Route: long, Time: last, Data: []byte(strings.Repeat("x", 3<<20))},
	})
	for _, d := range all {
		if is, most := proto.Size(&pluginv1.HandleRequest{Deltas: encode([]*event.Delta{d})}), deltaSize(d); is > most {
			t.Errorf("%v takes %d bytes, %d are counted", d, is, most)
		}
	}
}
