package config_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

type everything struct {
	Self    config.Node            `yaml:",self"`
	Text    string                 `yaml:"text" default:"some" enum:"some other"`
	Flag    bool                   `yaml:"flag"`
	Small   int8                   `yaml:"small" max:"100"`
	Big     uint64                 `yaml:"big"`
	Ratio   float64                `yaml:"ratio" default:"0.5" min:"0" max:"1"`
	Wait    time.Duration          `yaml:"wait" default:"1s" min:"10ms"`
	Size    config.Size            `yaml:"size" default:"64Mi" min:"1Ki"`
	Count   config.Count           `yaml:"count" default:"10M"`
	Secret  config.Secret          `yaml:"secret"`
	File    string                 `yaml:"file,path"`
	Files   []string               `yaml:"files,path"`
	Expr    *config.Expr           `yaml:"expr"`
	Raw     config.Node            `yaml:"raw"`
	Nested  nested                 `yaml:"nested"`
	Maybe   *nested                `yaml:"maybe"`
	List    []nested               `yaml:"list" max:"2"`
	Map     map[string]int         `yaml:"map"`
	Lists   map[string][]string    `yaml:"lists"`
	Exprs   map[string]config.Expr `yaml:"exprs"`
	Ignored string
}

type nested struct {
	Name  string `yaml:"name,required"`
	Level int    `yaml:"level" default:"7"`
}

// Validate is called after all fields were decoded, even if some have problems.
func (n *nested) Validate(node config.Node) config.Problems {
	if n.Name == "bad" {
		return config.Problems{node.At("name").Problemf("is bad")}
	}
	return nil
}

func TestDecodeDefaults(t *testing.T) {
	var got everything
	must.Succeed(t, node(t, "{}").Decode(&got).Err())
	got.Self = config.Node{}
	want := everything{Text: "some", Ratio: 0.5, Wait: time.Second, Size: 64 << 20, Count: 10_000_000, Nested: nested{Level: 7}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDecode(t *testing.T) {
	t.Setenv("LEVEL", "9")
	root, problems := config.ParseNode("/etc/router/config.yaml", []byte(`
text: other
flag: true
small: -128
big: 18446744073709551615
ratio: 1
wait: 1m30s
size: 1Gi
count: 5k
secret: s3cret
file: a/../b
files: [/abs, ./rel, https://host/x]
expr: a${b}
raw: {b: 1, a: [x]}
nested: {name: n, level: "${LEVEL}"}
maybe: {name: m}
list: [{name: a}, {name: b, level: 1}]
map: {x: 1, y: 2}
lists: {one: a, two: [a, b]}
exprs: {e: 1 + 1}
`))
	must.Succeed(t, problems.Err())
	var got everything
	must.Succeed(t, root.Decode(&got).Err())
	if raw, err := got.Raw.JSON(); err != nil || string(raw) != `{"b":1,"a":["x"]}` || got.Raw.Path() != "raw" {
		t.Errorf("%s %v", raw, err)
	}
	if value, err := got.Secret.Value(); value != "s3cret" || err != nil {
		t.Error(value, err)
	}
	if got.Expr.Text != "a${b}" || got.Exprs["e"].Text != "1 + 1" || !reflect.DeepEqual(got.Self, root) {
		t.Errorf("%+v", got)
	}
	got.Raw, got.Self, got.Secret, got.Expr, got.Exprs = config.Node{}, config.Node{}, config.Secret{}, nil, nil
	want := everything{
		Text: "other", Flag: true, Small: -128, Big: 1<<64 - 1, Ratio: 1, Wait: 90 * time.Second, Size: 1 << 30, Count: 5000,
		File: "/etc/router/b", Files: []string{"/abs", "/etc/router/rel", "https://host/x"},
		Nested: nested{"n", 9}, Maybe: &nested{"m", 7}, List: []nested{{"a", 7}, {"b", 1}},
		Map: map[string]int{"x": 1, "y": 2}, Lists: map[string][]string{"one": {"a"}, "two": {"a", "b"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDecodeProblems(t *testing.T) {
	tests := []struct{ yaml, want string }{
		{"text: else", `1:7: text: must be some or other, not "else"`},
		{"small: 200", `1:8: small: must be a whole number of at most 8 bits, not "200"`},
		{"small: 101", "1:8: small: must be at most 100, not 101"},
		{"big: -1", `1:6: big: must be a whole number, not "-1"`},
		{"ratio: .nan", `1:8: ratio: must be a number, not ".nan"`},
		{"ratio: 1.5", "1:8: ratio: must be at most 1, not 1.5"},
		{"wait: 1ms", "1:7: wait: must be at least 10ms, not 1ms"},
		{"size: 12", "1:7: size: must be at least 1Ki, not 12"},
		{"size: 1.5Gi", `1:7: size: must be a size in bytes, as in 512, 64Mi or 10M, not "1.5Gi"`},
		{"size: 1ki", `1:7: size: must be a size in bytes, as in 512, 64Mi or 10M, not "1ki"`},
		{"size: 9999999T", `1:7: size: must be a size in bytes, as in 512, 64Mi or 10M, not "9999999T"`},
		{"size: [1]", "1:7: size: must be a size in bytes, not a list"},
		{"count: -1", `1:8: count: must be a whole number that is not negative, as in 500, 10k or 10M, not "-1"`},
		{"count: 1Mi", `1:8: count: must be a whole number that is not negative, as in 500, 10k or 10M, not "1Mi"`},
		{"secret: ''", "1:9: secret: is empty: write the value, {file: path} or {env: NAME}"},
		{"secret: {}", "1:9: secret: needs exactly one of file and env"},
		{"secret: {file: a, env: b}", "1:9: secret: needs exactly one of file and env"},
		{"secret: {flie: a}", `1:10: secret.flie: unknown key; did you mean "file"?`},
		{"nested: {name: bad, level: x}", "1:16: nested.name: is bad\nconfig.yaml:1:28: nested.level: must be a whole number, not \"x\""},
		{"nested: {}", "1:9: nested: name is missing"},
		{"list: [{name: a}, {name: b}, {}]", "1:7: list: has 3 elements, and at most 2 are possible\nconfig.yaml:1:30: list[2]: name is missing"},
		{"list: {name: a}", "1:7: list: must be a list, not a mapping: begin each element with `- `"},
		{"map: {x: one}", `1:10: map.x: must be a whole number, not "one"`},
		{"Ignored: 1", "1:1: Ignored: unknown key; known are text, flag, small, big, ratio, wait, size, count, secret, file, files, expr, raw, nested, maybe, list, map, lists, exprs"},
		{"text:", "1:6: text: has no value: write one, or remove the key"},
	}
	for _, tt := range tests {
		var into everything
		problems := node(t, tt.yaml).Decode(&into)
		if got := problems.Error(); got != "config.yaml:"+tt.want {
			t.Errorf("%s\ngot  %s\nwant config.yaml:%s", tt.yaml, got, tt.want)
		}
	}
}

// TestFormerKeys: the message about a key of earlier versions names the remedy.
func TestFormerKeys(t *testing.T) {
	var c struct {
		Sinks map[string]struct {
			File   struct{} `yaml:"file"`
			Stdout struct{} `yaml:"stdout"`
		} `yaml:"sinks"`
		Routes []struct{} `yaml:"routes"`
	}
	for text, want := range map[string]string{
		"plugins: {dirs: [/bin]}":                  "test.yaml:1:1: plugins: is no key any more: start the router with -plugin-dir",
		"routes: [{was: r}]":                       "test.yaml:1:11: routes[0].was: is no key any more: if the router has not run",
		"sinks: {log: {file: {compress: zstd}}}":   "test.yaml:1:22: sinks.log.file.compress: is no key any more: remove it and set maxFiles: 0",
		"sinks: {log: {stdout: {compress: zstd}}}": "test.yaml:1:24: sinks.log.stdout.compress: unknown key",
	} {
		n, problems := config.ParseNode("test.yaml", []byte(text))
		must.Succeed(t, problems.Err())
		if problems = n.Decode(&c); len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), want) {
			t.Errorf("%s: %v, want %s", text, problems, want)
		}
	}
}

func TestDecodeIntoNonsense(t *testing.T) {
	n := node(t, "a: 1")
	for _, into := range []any{nil, everything{}, (*everything)(nil), new(chan int), new(func())} {
		if problems := n.Decode(into); len(problems) != 1 || strings.Contains(problems.Error(), "panic") {
			t.Errorf("%T: %v", into, problems)
		}
	}
}

func TestZeroNode(t *testing.T) {
	var n config.Node
	var into everything
	if problems := n.Decode(&into); len(problems) > 0 || into.Size != 64<<20 {
		t.Error(problems, into)
	}
	if data, err := n.JSON(); string(data) != "null" || err != nil {
		t.Errorf("%s %v", data, err)
	}
	if !n.IsZero() || n.Keys() != nil || n.Items() != nil || !n.At("a").At("b").IsZero() {
		t.Error("the zero Node is not empty")
	}
	if got := n.At("a").Problemf("is %s", "missing").Error(); got != "a: is missing" {
		t.Error(got)
	}
}

func TestNode(t *testing.T) {
	n := node(t, "a:\n  b: [1, {c: 2}]\n  'x y': 1\n  s: one\n  z:\n")
	a := n.At("a")
	if got := fmt.Sprint(a.Keys()); got != "[b x y s z]" {
		t.Error(got)
	}
	for _, tt := range []struct {
		node config.Node
		want string
	}{
		{a.At("b").Items()[1].At("c"), "config.yaml:2:14: a.b[1].c: x"},
		{a.At("x y"), `config.yaml:3:10: a["x y"]: x`},
		{a.At("missing"), "config.yaml:2:3: a.missing: x"},
		{a.At("s").Items()[0], "config.yaml:4:6: a.s: x"},
		{n, "config.yaml:1:1: x"},
	} {
		if got := tt.node.Problemf("x").Error(); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
	if !a.At("z").IsZero() || a.At("s").IsZero() || len(a.Items()) != 0 || len(a.At("z").Items()) != 0 {
		t.Error("nothing, a scalar or a mapping is taken for something else")
	}
}

func TestJSON(t *testing.T) {
	t.Setenv("N", "12")
	t.Setenv("B", "true")
	tests := []struct{ yaml, want string }{
		{"a: ${N}\nb: '${N}'\nc: x${N}\nd: ${B}\ne: ${NOT_SET:-}", `{"a":12,"b":"12","c":"x12","d":true,"e":null}`},
		{"[1, -1.50, 1e3, .5, 0x10, 0o17, 1_000, +5, 123456789012345678901234567890]", "[1,-1.50,1e3,0.5,16,15,1000,5,123456789012345678901234567890]"},
		{"[true, False, yes, ~, null, 2001-02-03, !!str 1]", `[true,false,"yes",null,null,"2001-02-03","1"]`},
		{"z: <a>\na: \"\\u2028\\n\"\n1: 2", `{"z":"<a>","a":"\u2028\n","1":2}`},
		{"a: &x {b: 1}\nc: {<<: *x, d: 2}", `{"a":{"b":1},"c":{"d":2,"b":1}}`},
	}
	for _, tt := range tests {
		if got, err := node(t, tt.yaml).JSON(); string(got) != tt.want || err != nil {
			t.Errorf("%s\ngot  %s %v\nwant %s", tt.yaml, got, err, tt.want)
		}
	}
	_, err := node(t, "a: .inf\nb: ${NOT_SET}").JSON()
	want := "config.yaml:1:4: a: is a number that JSON does not have: put it in quotes\n" +
		"config.yaml:2:4: b: environment variable NOT_SET is not set: set it, or write ${NOT_SET:-default}"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestSecret(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	write(t, path, "one\r\n")
	t.Setenv("TOKEN", "two")
	root, problems := config.ParseNode(filepath.Join(dir, "config.yaml"), []byte("file: {file: token}\nenv: {env: TOKEN}\nplain: ${TOKEN}2\ngone: {file: nothing}\nfolder: {file: .}\nunset: {env: NOT_SET}"))
	must.Succeed(t, problems.Err())
	var s map[string]config.Secret
	must.Succeed(t, root.Decode(&s).Err())
	expect(t, s["file"], "one", "")
	expect(t, s["file"], "one", "")
	expect(t, s["env"], "two", "")
	expect(t, s["plain"], "two2", "")
	expect(t, s["unset"], "", "environment variable NOT_SET is empty or not set")
	expect(t, s["gone"], "", "secret file "+filepath.Join(dir, "nothing")+" cannot be read: there is no such file or folder")
	expect(t, s["folder"], "", "secret file "+dir+" is a folder: name a file in it")
	expect(t, config.Secret{}, "", "no secret is configured")

	// A new file with the same time and length replaces the old one. The kubelet updates files in
	// this way.
	info, err := os.Stat(path)
	must.Succeed(t, err)
	write(t, path+".new", "NEW\r\n")
	must.Succeed(t, os.Chtimes(path+".new", info.ModTime(), info.ModTime()))
	must.Succeed(t, os.Rename(path+".new", path))
	copied := s["file"]
	expect(t, copied, "NEW", "")
	write(t, path, "longer")
	expect(t, copied, "longer", "")
	write(t, path, "\n")
	expect(t, copied, "", "secret file "+path+" is empty")
	write(t, path, strings.Repeat("x", 1<<20+1))
	expect(t, copied, "", "secret file "+path+" is larger than 1 MiB")
}

func expect(t *testing.T, s config.Secret, value, message string) {
	t.Helper()
	got, err := s.Value()
	if got != value || (err == nil) != (message == "") || err != nil && err.Error() != message {
		t.Errorf("got %q %v, want %q %s", got, err, value, message)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
}

// TestSecretIsHidden prints a secret in many ways.
func TestSecretIsHidden(t *testing.T) {
	var into struct {
		S config.Secret `yaml:"s"`
	}
	must.Succeed(t, node(t, "s: hunter2").Decode(&into).Err())
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "s", into.S, "all", into)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "s", into.S, "all", into)
	encoded, err := json.Marshal(into)
	must.Succeed(t, err)
	all := fmt.Sprintf("%v %+v %#v %s %q %v %s %s", into.S, into, into, into.S, into.S, &into.S, log.String(), encoded)
	if strings.Contains(all, "hunter2") || !strings.Contains(all, "[secret]") {
		t.Error(all)
	}
}
