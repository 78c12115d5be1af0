package cli

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestParse: flags have one dash or two, and stand before, between and behind the arguments.
func TestParse(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "[] name= on=false for=0s"},
		{"a -name x b", "[a b] name=x on=false for=0s"},
		{"--name x --on a", "[a] name=x on=true for=0s"},
		{"-name=x=y -on=false -for 5m", "[] name=x=y on=false for=5m0s"},
		{"-name -on a", "[a] name=-on on=false for=0s"},
		{"a -- -name b", "[a -name b] name= on=false for=0s"},
		{"- -name -", "[-] name=- on=false for=0s"},
		{"-nam x", `there is no flag -nam; did you mean "-name"?`},
		{"-x", "there is no flag -x"},
		{"-a", "there is no flag -a"},
		{"-AA", `there is no flag -AA; did you mean "-A"?`},
		{"-name", "-name needs a value: write -name TEXT"},
		{"-on=si", "-on si: write true or false, or leave the value out"},
		{"-for 5", "-for 5: write a number and a unit, as in 30s or 5m"},
		{"a -h", errHelp.Error()},
		{"a --help", errHelp.Error()},
	} {
		f := newFlags()
		name := f.String("name", "", "`TEXT` a name")
		on := f.Bool("on", false, "a switch")
		f.Bool("A", false, "a flag of one letter")
		length := f.Duration("for", 0, "`DURATION` a length")
		rest, err := f.parse(strings.Fields(c.args))
		got := fmt.Sprintf("%v name=%s on=%t for=%s", rest, *name, *on, *length)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.args, got, c.want)
		}
	}
}

// TestLogFormat: -log-format decides. Without it, the format is JSON where there is no terminal.
func TestLogFormat(t *testing.T) {
	for args, want := range map[string]string{
		"": `{"`, "-log-format json": `{"`, "-log-format text": "time=", "-log-format=text -log-level debug": "time=",
	} {
		var l Logging
		f := newFlags()
		l.AddFlags(f, slog.LevelInfo)
		_, err := f.parse(strings.Fields(args))
		must.Succeed(t, err)
		var out bytes.Buffer
		log := l.New(&out)
		log.Debug("low", "at", time.Second)
		if debug := strings.Contains(args, "debug"); (out.Len() > 0) != debug {
			t.Errorf("%q: a line of level debug: %s", args, &out)
		}
		log.Info("high", "pause", 20218543022*time.Nanosecond)
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("%q: %s, want %s first", args, &out, want)
		}
		if !strings.Contains(out.String(), "pause=20.2s") && !strings.Contains(out.String(), `"pause":"20.2s"`) {
			t.Errorf("%q: %s, want a rounded duration", args, &out)
		}
	}
}
