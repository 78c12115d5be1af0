package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// Load reads a configuration file. See [Parse].
func Load(path string) (*Config, Problems) {
	data, err := readFile(path)
	if err != nil {
		return nil, Problems{{File: path, Message: fmt.Sprintf("cannot be read: %v", err)}}
	}
	return Parse(path, data)
}

// readFile reads no more than one byte beyond what Parse accepts.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxDocument+1))
}

// Parse reads a configuration and finds all its problems, in the order of the file. The file is for problems, and relative paths
// are relative to its folder.
//
// Beside problems, the Config holds what could be read, for checks that want to go on: it must not be run. It is nil if
// nothing could.
func Parse(file string, data []byte) (*Config, Problems) {
	root, problems := ParseNode(file, data)
	if root.yaml == nil {
		return nil, problems
	}
	cfg := &Config{}
	problems = append(problems, root.Decode(cfg)...)
	problems = append(problems, cfg.checkAll(root)...)
	sum := sha256.Sum256(data)
	cfg.Hash = hex.EncodeToString(sum[:6])
	problems = problems.Sorted()
	if len(problems) > maxProblems {
		problems = append(problems[:maxProblems], Problem{File: file, Message: "has more problems than these: is it the right file?"})
	}
	return cfg, problems
}
