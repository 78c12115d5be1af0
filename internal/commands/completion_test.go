package commands

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

const completed = `version: 1
sources:
  pods: {resource: v1/pods, indexes: {byNode: object.spec.nodeName, byApp: object.metadata.labels.app}}
  nodes: {resource: v1/nodes, indexes: {byZone: object.metadata.labels.zone}}
sinks: {out: {stdout: {}}}
routes:
  - {name: alerts, from: pods, to: out}
  - {name: archive, from: nodes, to: out}
`

// completionFolder makes a folder with files and configurations, and enters it.
func completionFolder(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	must.Succeed(t, os.WriteFile("config.yaml", []byte(completed), 0o600))
	must.Succeed(t, os.WriteFile("other.yaml", []byte("sources: {secrets: {resource: v1/secrets}}\nroutes: [{name: x}, broken]\n"), 0o600))
	must.Succeed(t, os.Mkdir("folder", 0o700))
}

// completions are command lines up to the cursor, and the candidates for the last word.
var completions = []struct {
	line string
	want string
}{
	{"router ch", "check"},
	{"router dlq r", "retry"},
	{"router help res", "resume resync"},
	{"router help dlq s", "show"},
	{"router get ", "nodes pods"},
	{"router get p", "pods"},
	{"router get -o y", "yaml"},
	{"router get -o jsonp", "jsonpath="},
	{"router get -o=n", "-o=name"},
	{"router get --o=n", "--o=name"},
	{"router get pods -index by", "byApp= byNode="},
	{"router get nodes -index b", "byZone="},
	{"router get -index o", "owner="},
	{"router get -act", "-active"},
	{"router get --act", "--active"},
	{"router get -active a", "alerts archive"},
	{"router resume al", "alerts"},
	{"router resume -config other.yaml ", "x"},
	{"router resync -config other.yaml -source ", "secrets"},
	{"router resync -config=other.yaml -source ", "secrets"},
	{"router -log-f", "-log-format"},
	{"router -log-level w", "warn"},
	{"router -log-level=w", "-log-level=warn"},
	{"router check -strict=f", "-strict=false"},
	{"router completion z", "zsh"},
	{"router nonsense ", ""},
	{"router resume alerts ", ""},
	{"router get -nonsense ", "nodes pods"},
}

// TestComplete: the hidden command that the scripts call.
func TestComplete(t *testing.T) {
	completionFolder(t)
	for _, c := range completions {
		words := strings.Split(c.line, " ")
		words[0] = "__complete"
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), words, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("%s: exit code %d: %s", c.line, code, &stderr)
		}
		var got []string
		for line := range strings.Lines(stdout.String()) {
			if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(name, ":") {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}

// TestParsed: each shell accepts its script, without executing it.
func TestParsed(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			program, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("there is no %s on this machine, which alone can parse its script", shell)
			}
			var script, stderr bytes.Buffer
			if code := run(t.Context(), []string{"completion", shell}, &script, &stderr); code != 0 || script.Len() == 0 {
				t.Fatalf("exit code %d, %s", code, &stderr)
			}
			file := filepath.Join(t.TempDir(), "script")
			must.Succeed(t, os.WriteFile(file, script.Bytes(), 0o600))
			cmd := exec.CommandContext(t.Context(), program, "-n", file)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir()) // fish writes into it
			if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
				t.Errorf("%v: %s", err, said)
			}
		})
	}
}

// driver completes a command line as bash does at the key TAB.
const driver = `
eval "$1"
COMP_LINE=$2
COMP_POINT=${#COMP_LINE}
# bash makes "=" a word of its own.
read -ra COMP_WORDS <<<"${COMP_LINE//=/ = }"
[[ $COMP_LINE == *" " || $COMP_LINE == *= && ${COMP_WORDS[-1]} != "=" ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
COMP_WORDS[0]=$3
_router router "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
complete -p router >&2
printf '%s\n' "${COMPREPLY[@]}"
`

// TestBash: bash completes the candidates of the hidden command, and files and folders by itself.
func TestBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	completionFolder(t)
	var script, stderr bytes.Buffer
	if code := run(t.Context(), []string{"completion", "bash"}, &script, &stderr); code != 0 {
		t.Fatal(&stderr)
	}
	cases := append(completions[:len(completions):len(completions)], []struct{ line, want string }{
		{"router -config oth", "other.yaml"},
		{"router check conf", "config.yaml"},
		{"router check fo", "folder"},
		{"router schema pull -o ", "folder"},
		{"router -config=oth", "other.yaml"},
	}...)
	program, err := filepath.Abs(os.Args[0])
	must.Succeed(t, err)
	for _, c := range cases {
		cmd := exec.CommandContext(t.Context(), bash, "--norc", "-c", driver, "bash", script.String(), c.line, program)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		must.Succeed(t, cmd.Run())
		// bash replaces the part behind "=" only.
		want := c.want
		if line := strings.Fields(c.line); strings.Contains(line[len(line)-1], "=") && !strings.HasSuffix(c.line, " ") {
			_, want, _ = strings.Cut(want+"=", "=")
			if want = strings.TrimSuffix(want, "="); want == "" {
				want = c.want
			}
		}
		if got := strings.Join(strings.Fields(stdout.String()), " "); got != want {
			t.Errorf("%s: %q, want %q; %s", c.line, got, want, &stderr)
		}
	}
}
