package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// versionOf returns the version that a binary tells, or the one that the Go tool has recorded.
func (p *program) versionOf(ctx context.Context, binary string) string {
	if len(p.version) > 0 {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, binary, p.version...)
		cmd.WaitDelay = time.Second
		if out, err := cmd.CombinedOutput(); err == nil {
			if line := firstLine(string(out)); line != "" {
				return line
			}
		}
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return "unknown"
	}
	return recorded(info)
}

// recorded returns the version of the main module, and the commit. A version that the Go tool has
// made of the commit is left out.
func recorded(info *buildinfo.BuildInfo) string {
	var commit, date string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value[:min(9, len(s.Value))]
		case "vcs.time":
			date, _, _ = strings.Cut(s.Value, "T")
		}
	}
	version := info.Main.Version
	if version == "(devel)" || commit != "" && strings.Contains(version, "-"+commit) {
		version = ""
	}
	parts := slices.DeleteFunc([]string{version, commit, date}, func(s string) bool { return s == "" })
	return cmp.Or(strings.Join(parts, ", "), "unknown")
}

// firstLine returns the first line with a digit, without the word before the version.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.ContainsAny(line, "0123456789") {
			return regexp.MustCompile(`^(?i)[a-z: -]*version:? *|^[a-z-]+:? +`).ReplaceAllString(line, "")
		}
	}
	return ""
}
