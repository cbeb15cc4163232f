module marcato.example/urgent

go 1.19
