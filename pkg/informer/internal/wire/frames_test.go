package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

func podFormat() *Format {
	return &Format{Drop: [][]string{{"metadata", "managedFields"}}}
}

func podResource() *event.Resource {
	return &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Cluster: "test", Kind: "Pod"}
}

// readFrames returns one line per event of a watch response, and the error that ended it. With
// ahead the events are decoded on all cores until there were that many of them.
func readFrames(body io.Reader, size, ahead int) (lines []string, end error) {
	in := NewStream(body, func() {})
	in.max = size
	f := NewFrames(podFormat(), podResource(), in)
	if ahead > 0 {
		f.Ahead()
		defer f.Close()
	}
	for {
		if len(lines) == ahead {
			f.Calm()
		}
		e, err := f.Next()
		var bad *ObjectError
		switch {
		case errors.As(err, &bad):
			lines = append(lines, fmt.Sprintf("%s bad %s: %v", e.Type, bad.Key, bad.Reason))
		case err != nil:
			return lines, err
		default:
			lines = append(lines, string(e.Type)+" "+textOf(e))
		}
	}
}

func textOf(e watch.Event) string {
	if o, ok := e.Object.(*event.Object); ok {
		return string(o.JSON())
	}
	text, _ := json.Marshal(e.Object)
	return string(text)
}

const (
	frameA = `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1","managedFields":[{"f:x":{}}]}}}`
	textA  = `ADDED {"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1"}}`
	frameB = `{"object":{"metadata":{"managedFields":null,"resourceVersion":"12345678901234567890","name":"b\"\u00e9","namespace":"n"},"kind":"Pod","apiVersion":"v1","n":9007199254740993},"type":"MODIFIED"}`
	textB  = `MODIFIED {"metadata":{"resourceVersion":"12345678901234567890","name":"b\"\u00e9","namespace":"n"},"kind":"Pod","apiVersion":"v1","n":9007199254740993}`
)

func indent(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	must.Succeed(t, json.Indent(&b, []byte(text), "", "  "))
	return b.String()
}

func TestFrames(t *testing.T) {
	big := strings.Repeat("x", 900<<10)
	frameBig := `{"type":"DELETED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"big","resourceVersion":"3"},"x":"` + big + `"}}`
	textBig := `DELETED {"kind":"Pod","apiVersion":"v1","metadata":{"name":"big","resourceVersion":"3"},"x":"` + big + `"}`
	gone := `{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"m"}}`
	tests := []struct {
		name, body string
		want       []string
		end        error
	}{
		{"empty", "", nil, io.EOF},
		{"lines", frameA + "\n" + frameB + "\n", []string{textA, textB}, io.EOF},
		{"no newline at the end", frameA + "\n" + frameB, []string{textA, textB}, io.EOF},
		{"one line", frameA + frameB + " " + frameA + "\n", []string{textA, textB, textA}, io.EOF},
		{"big", frameA + "\n" + frameBig + "\n" + frameB + "\n", []string{textA, textBig, textB}, io.EOF},
		{
			"bookmark", `{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7","creationTimestamp":null,"annotations":{"k8s.io/initial-events-end":"true"}},"spec":{}}}`,
			[]string{`BOOKMARK {"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}`},
			io.EOF,
		},
		{"error", gone, []string{`ERROR {"kind":"Status","metadata":{},"status":"Failure","message":"m","reason":"Expired","code":410}`}, io.EOF},
		{"cut off", frameA + "\n" + frameB[:50], []string{textA}, io.ErrUnexpectedEOF},
		{"unreadable", frameA + "\n" + strings.Replace(frameB, `"n":9`, `"n":09`, 1) + "\n" + frameA, []string{textA, `MODIFIED bad n/b"é: invalid JSON at byte 156: malformed number`, textA}, io.EOF},
		{"no name", `{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}}` + frameA, []string{"ADDED bad : " + event.ErrNoIdentity.Error(), textA}, io.EOF},
		{"no version", `{"type":"ADDED","object":{"metadata":{"name":"x"}}}` + frameA, []string{"ADDED bad x: " + errNoVersion.Error(), textA}, io.EOF},
		{"no object", `{"type":"ADDED","object":[1]}` + frameA, []string{"ADDED bad : " + event.ErrNoIdentity.Error(), textA}, io.EOF},
		{"HTML", frameA + "\n<html>", []string{textA}, ErrNotJSON},
		{"text", "404 page not found", nil, ErrNotWatch},
		{"no event", frameA + "\n" + `{"kind":"Status"}` + "\n", []string{textA}, ErrNotWatch},
		{"unknown type", `{"type":"x","object":{}}`, nil, ErrNotWatch},
		{"newline in a string", "{\"type\":\"ADDED\",\"object\":{\"a\":\"x\ny\"}}", nil, ErrNotJSON},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for how, body := range map[string]func() io.Reader{
				"at once":     func() io.Reader { return strings.NewReader(test.body) },
				"one by one":  func() io.Reader { return iotest.OneByteReader(strings.NewReader(test.body)) },
				"with EOF":    func() io.Reader { return iotest.DataErrReader(strings.NewReader(test.body)) },
				"in 7 pieces": func() io.Reader { return &pieces{text: test.body, size: len(test.body)/7 + 1} },
			} {
				for ahead := range 3 {
					got, end := readFrames(body(), MaxObject, ahead)
					if !reflect.DeepEqual(got, test.want) || !errors.Is(end, test.end) {
						t.Errorf("%s, %d ahead: got %.300q\nand %v, want %.300q and %v", how, ahead, got, end, test.want, test.end)
					}
				}
			}
		})
	}
}

func TestFramesIndented(t *testing.T) {
	got, end := readFrames(strings.NewReader(indent(t, frameA)+"\n"+indent(t, frameB)+indent(t, frameA)), MaxObject, 1)
	if len(got) != 3 || !errors.Is(end, io.EOF) {
		t.Fatal(got, end)
	}
	for i, want := range []string{textA, textB, textA} {
		kind, text, _ := strings.Cut(got[i], " ")
		var b bytes.Buffer
		if err := json.Compact(&b, []byte(text)); err != nil || kind+" "+b.String() != want {
			t.Errorf("got %s %s, %v; want %s", kind, b.String(), err, want)
		}
	}
}

func TestTooBig(t *testing.T) {
	// Guarantee: unreadable-object
	frame := `{"type":"ADDED","object":{"metadata":{"name":"big","namespace":"n","resourceVersion":"3"},"x":"` + strings.Repeat("x", 300<<10) + `"}}`
	for _, sep := range []string{"\n", ""} {
		for ahead, body := range []io.Reader{
			strings.NewReader(frameA + sep + frame + sep + frameA),
			iotest.OneByteReader(strings.NewReader(frameA + sep + frame + sep + frameA)),
		} {
			got, end := readFrames(body, 200<<10, 2*ahead)
			if want := []string{textA, "ADDED bad n/big: " + errTooBig.Error(), textA}; !reflect.DeepEqual(got, want) || !errors.Is(end, io.EOF) {
				t.Errorf("got %q, %v", got, end)
			}
		}
	}
}

// pieces returns a text in pieces of the same size.
type pieces struct {
	text string
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b, p.text[:min(p.size, len(p.text))])
	p.text = p.text[n:]
	return n, nil
}

// FuzzFrames: the result does not depend on the sizes of the reads, nor on the cores.
func FuzzFrames(f *testing.F) {
	f.Add(frameA+"\n"+frameB+"\n", 3)
	f.Add(frameA+frameB, 1)
	f.Add(indent(f, frameB)+"{}", 40)
	f.Add(frameA[:60]+"\n"+frameB, 9)
	f.Add("{\"type\":\"ADDED\",\"object\":{\"a\":\"\xff\"}}", 5)
	f.Fuzz(func(t *testing.T, body string, size int) {
		if size < 1 {
			return
		}
		want, wantEnd := readFrames(strings.NewReader(body), MaxObject, 0)
		got, gotEnd := readFrames(&pieces{body, size}, MaxObject, size%4)
		if !reflect.DeepEqual(got, want) || errors.Is(gotEnd, io.EOF) != errors.Is(wantEnd, io.EOF) || errors.Is(gotEnd, ErrNotJSON) != errors.Is(wantEnd, ErrNotJSON) {
			t.Fatalf("in pieces of %d: %q, %v\nat once: %q, %v", size, got, gotEnd, want, wantEnd)
		}
		for _, line := range got {
			if _, text, _ := strings.Cut(line, " "); strings.HasPrefix(text, "{") && rawjson.Check(text) != nil {
				t.Fatalf("not valid: %s", text)
			}
		}
	})
}
