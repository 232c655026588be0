// SPDX-License-Identifier: Apache-2.0

// Command fakeagent stands in for allod-agent: it prints what it was started with.
package main

import (
	"encoding/json"
	"io"
	"os"
)

func main() {
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	err = json.NewEncoder(os.Stdout).Encode(map[string]any{"args": os.Args, "env": os.Environ(), "stdin": stdin})
	if err != nil {
		panic(err)
	}
}
