package must_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// fakeT records the calls of a test.
type fakeT struct{ said string }

func (*fakeT) Helper()                          {}
func (t *fakeT) Error(args ...any)              { t.said += "error " + fmt.Sprint(args...) }
func (t *fakeT) Errorf(text string, all ...any) { t.said += "error " + fmt.Sprintf(text, all...) }
func (t *fakeT) Fatal(args ...any)              { t.said += "fatal " + fmt.Sprint(args...) }

func TestMust(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		check func(t must.T)
		want  string
	}{
		{func(t must.T) { must.Succeed(t, nil) }, ""},
		{func(t must.T) { must.Succeed(t, broken) }, "fatal broken"},
		{func(t must.T) { must.Report(t, nil) }, ""},
		{func(t must.T) { must.Report(t, broken) }, "error broken"},
		{func(t must.T) { must.Fail(t, broken, "rok") }, ""},
		{func(t must.T) { must.Fail(t, broken, "other") }, `error the error is broken, want one with "other"`},
		{func(t must.T) { must.Fail(t, nil, "x") }, `error the error is <nil>, want one with "x"`},
	} {
		fake := &fakeT{}
		if c.check(fake); fake.said != c.want {
			t.Errorf("said %q, want %q", fake.said, c.want)
		}
	}
}
