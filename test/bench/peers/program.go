package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/client-go/rest"
)

// program is one tool of the comparison.
type program struct {
	name     string
	binaries []string // in the folder of the peers; the first one names the version
	tools    []string // of the PATH
	works    []*work
	// setUp writes the configuration into the folder of the place, and returns the commands in the
	// order of their start.
	setUp func(context.Context, *place) ([]command, error)
	// parse returns the statements of a POST.
	parse  func(http.Header, []byte) ([]told, error)
	answer string // to each POST; empty: {}
	// version are the arguments with which the first binary tells its version; empty: it cannot.
	version []string
	// untried: the configuration was written from the documentation, without the program.
	untried bool
	// note is the setting that a reader must know.
	note string
}

// place is where a program runs.
type place struct {
	dir        string
	kubeconfig string
	config     *rest.Config
	receiver   string // URL
	work       *work
	binary     func(name string) string
}

// command is a process of a program.
type command struct {
	path string
	args []string
	env  []string
	// address: the next process starts when this one accepts connections there.
	address string
}

// write writes a file of the place and returns its path.
func (p *place) write(name, text string) (string, error) {
	file := filepath.Join(p.dir, name)
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	return file, errors.Join(err, os.WriteFile(file, []byte(text), 0o700)) //nolint:gosec // a hook is a script
}

// missing returns the needs of a program that are absent.
func (p *program) missing(binary func(string) string) (names []string) {
	for _, name := range p.binaries {
		if _, err := os.Stat(binary(name)); errors.Is(err, fs.ErrNotExist) {
			names = append(names, name)
		}
	}
	for _, name := range p.tools {
		if _, err := exec.LookPath(name); err != nil {
			names = append(names, name)
		}
	}
	return names
}

// commandLine returns the commands for the page, without the names of this machine.
func commandLine(commands []command, p *place) string {
	const long = 60
	names := strings.NewReplacer(p.dir, "DIR", p.kubeconfig, "KUBECONFIG", p.receiver, "URL")
	ports := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	plain := func(text string) string { return ports.ReplaceAllString(names.Replace(text), "127.0.0.1:PORT") }
	var lines []string
	for _, c := range commands {
		var words []string
		for _, e := range c.env {
			name, value, _ := strings.Cut(plain(e), "=")
			if len(value) > long {
				value = "…"
			}
			words = append(words, name+"="+value)
		}
		words = append(words, filepath.Base(c.path))
		for _, a := range c.args {
			if a = plain(a); len(a) > long {
				a = "…"
			}
			words = append(words, a)
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "; ")
}

// stated is an object of Kubernetes as far as the comparison reads it.
type stated struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Data struct {
		Stamp string `json:"stamp"`
	} `json:"data"`
	Message string `json:"message"` // of an Event
}

// brief is the body of the programs that can select fields: three of them.
type brief struct {
	Op    string `json:"op"`
	Name  string `json:"name"`
	Stamp string `json:"stamp"`
}

func (b brief) told() told {
	return told{b.Name, number(b.Stamp), strings.EqualFold(b.Op, "deleted") || strings.EqualFold(b.Op, "delete")}
}

// oneOf returns an error that a POST is not what the program was configured to send.
func oneOf(name string) error { return fmt.Errorf("a POST without %s", name) }
