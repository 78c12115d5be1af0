package plugintest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

// printingTB prints the failures of a test. In a test of your own, pass its t.
type printingTB struct{ testing.TB }

func (printingTB) Helper() {}

func (printingTB) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// A sink that delivers the newer of two events with one key has lost their order if the older one
// comes again.
func ExampleCheckOrder() {
	events := []event.Event{{ID: "1", Key: "web-0"}, {ID: "2", Key: "web-0"}, {ID: "3", Key: "web-1"}}
	unavailable := errors.New("status 503")
	plugintest.CheckOrder(printingTB{}, events, []error{unavailable, nil, nil})
	plugintest.CheckOrder(printingTB{}, events, []error{unavailable, unavailable, nil})                     // correct
	plugintest.CheckOrder(printingTB{}, events, []error{plugins.Reject(errors.New("too large")), nil, nil}) // correct
	// Output:
	// event 1 was delivered, although 0 of its key has to come again: status 503
}

// The deltas cover each op and flag.
func ExampleDeltas() {
	for _, d := range plugintest.Deltas(printingTB{}) {
		fmt.Println(d.Op, d.Object(), d.Initial, d.Redelivered, d.Stale)
	}
	// Output:
	// added default/a true false false
	// updated default/b false false false
	// updated default/c false true false
	// deleted default/d false false true
	// deselected default/e false false false
	// sync default/f false false false
	// added n1 false false false
}
